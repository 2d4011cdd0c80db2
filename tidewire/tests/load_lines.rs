//! `load` against a scripted server: what it sends, when it sends it again, what it says when it stops.

use std::io::Write;

use super::command_line::{against, answer, complaint, ok, stdout, tidewire};

fn file(lines: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(lines.as_bytes()).expect("written");
    file
}

const WRITTEN: &str = r#"{"version":"1@a","token":"t1","count":1}"#;

#[test]
fn a_key_that_comes_twice_is_written_in_the_order_of_the_lines() {
    let lines = file(
        "{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":\"a\",\"value\":\"3\"}\n",
    );
    let path = lines.path().to_str().expect("a path");
    let answers = [&*ok("", WRITTEN), &*ok("", WRITTEN)];
    let (output, asked) = against(&answers, &["load", "t", path], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).starts_with("3 lines written to t in "), "{}", stdout(&output));
    assert_eq!(asked.len(), 2);
    assert!(
        asked[0].contains("POST /v1/trees/t/batch") && asked[0].contains(r#""atomic":true"#),
        "{asked:?}"
    );
    assert!(asked[0].contains(r#""value":"1""#) && asked[0].contains(r#""value":"2""#), "{asked:?}");
    assert!(asked[1].contains(r#""value":"3""#) && !asked[1].contains(r#""value":"1""#), "{asked:?}");
}

#[test]
fn a_load_begins_where_it_is_told_to_and_reads_standard_input() {
    let (output, asked) = against(
        &[&ok("", WRITTEN)],
        &["load", "t", "-", "--from-line", "2"],
        b"not read\n{\"key\":\"a\",\"value\":\"1\"}\n",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(asked[0].contains(r#""key":"a""#), "{asked:?}");
}

#[test]
fn a_batch_that_a_busy_server_did_not_take_is_sent_again() {
    let busy = answer("503 Service Unavailable", "", r#"{"error":{"kind":"unavailable","message":"full"}}"#);
    let (output, asked) =
        against(&[&busy, &ok("", WRITTEN)], &["load", "t", "-"], b"{\"key\":\"a\",\"value\":\"1\"}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(asked[0], asked[1]);
}

#[test]
fn a_wrong_line_is_named_and_what_stands_before_it_is_written() {
    let (output, asked) = against(
        &[&ok("", WRITTEN)],
        &["load", "t", "-"],
        b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\"}\n{\"key\":\"c\",\"value\":\"3\"}\n",
    );
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(asked[0].contains(r#""key":"a""#) && !asked[0].contains(r#""key":"c""#), "{asked:?}");
    let said = complaint(&output);
    assert!(said.contains("line 2:") && said.contains("--from-line 2"), "{said}");
}

#[test]
fn a_line_that_the_server_refuses_is_named() {
    let refused = answer("400 Bad Request", "", r#"{"error":{"kind":"invalid","message":"ops[1]: no"}}"#);
    let input = b"\n{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\",\"value\":\"2\"}\n";
    let (output, _) = against(&[&refused], &["load", "t", "-"], input);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = complaint(&output);
    assert!(said.contains("line 4 was refused") && said.contains("--from-line 2"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_a_usage_error() {
    let output = tidewire(&["load", "t", "no-such-file.jsonl"], None, b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("no-such-file.jsonl"));
}
