//! The binary against a scripted server: what it asks, what it prints, how it exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

/// Runs the binary; `url` is added where there is one.
pub(super) fn tidewire(arguments: &[&str], url: Option<&str>, stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(url) = url {
        command.args(["--url", url]);
    }
    let mut child = command.spawn().expect("the binary starts");
    child.stdin.take().expect("piped").write_all(stdin).expect("it reads or has ended");
    child.wait_with_output().expect("it ends")
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a request");
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line.trim().is_empty() {
            break;
        }
        request.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    request + "\n" + &String::from_utf8_lossy(&body)
}

/// Runs the binary against a server that gives these answers, one connection each. Returns what it was asked, too.
pub(super) fn against(answers: &[&str], arguments: &[&str], stdin: &[u8]) -> (Output, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let serve = |answer: &&str| {
                let (mut stream, _) = listener.accept().expect("a connection");
                let request = read_request(&mut stream);
                let _left = stream.write_all(answer.as_bytes());
                request
            };
            answers.iter().map(serve).collect::<Vec<_>>()
        });
        let output = tidewire(arguments, Some(&url), stdin);
        // A request that never came must not leave the server waiting for it.
        for _ in answers {
            drop(TcpStream::connect(url.trim_start_matches("http://")));
        }
        (output, server.join().expect("the server saw its requests"))
    })
}

pub(super) fn ok(headers: &str, body: &str) -> String {
    answer("200 OK", headers, body)
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

pub(super) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The one line that a failing command prints.
pub(super) fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn put_sends_the_encoded_key_and_the_value_from_stdin() {
    let answer = ok("Tidewire-Version: 7@eu\r\nTidewire-Token: t1\r\n", "");
    let (output, asked) = against(&[&answer], &["put", "orders", "a/b", "-"], b"paid\n");
    assert!(asked[0].starts_with("PUT /v1/trees/orders/keys/a%2Fb HTTP/1.1"), "{}", asked[0]);
    assert!(asked[0].ends_with("\npaid\n"), "{}", asked[0]);
    assert_eq!(stdout(&output), "7@eu\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn put_sends_a_time_to_live_in_seconds_and_delete_range_both_ends() {
    let answer = ok("Tidewire-Version: 7@eu\r\n", "");
    let (_, asked) = against(&[&answer], &["put", "orders", "k", "v", "--ttl", "5m"], b"");
    assert!(asked[0].to_lowercase().contains("tidewire-ttl: 300\r\n"), "{}", asked[0]);
    let (output, asked) = against(&[&answer], &["delete-range", "orders", "a/", "b"], b"");
    assert!(asked[0].starts_with("DELETE /v1/trees/orders/keys?from=a%2F&to=b "), "{}", asked[0]);
    assert_eq!(stdout(&output), "7@eu\n");
    let refused = tidewire(&["put", "orders", "k", "v", "--ttl", "100ms"], Some("http://127.0.0.1:1"), b"");
    assert_eq!(refused.status.code(), Some(2));
    assert!(complaint(&refused).contains("whole number of seconds"));
}

#[test]
fn get_prints_the_bytes_and_json_marks_what_is_not_text() {
    let reply = ok("Tidewire-Version: 7@eu\r\n", "v");
    let (output, _) = against(&[&reply], &["get", "orders", "k"], b"");
    assert_eq!(stdout(&output), "v");
    let (output, _) = against(&[&reply], &["get", "orders", "k", "--json"], b"");
    assert_eq!(stdout(&output), "{\"key\":\"k\",\"value\":\"v\",\"version\":\"7@eu\"}\n");
}

#[test]
fn a_refusal_is_one_line_with_the_exit_code_of_its_kind() {
    for (status, code) in [("404 Not Found", 1), ("400 Bad Request", 2), ("503 Service Unavailable", 3)] {
        let reply = answer(status, "", "{\"error\":{\"kind\":\"x\",\"message\":\"no key k in orders\"}}");
        let (output, _) = against(&[&reply], &["get", "orders", "k"], b"");
        assert_eq!(output.status.code(), Some(code), "{status}");
        assert!(complaint(&output).contains("no key k in orders"));
    }
}

#[test]
fn scan_follows_the_pages_and_starts_after_the_last_key() {
    let first = r#"{"entries":[{"key":"a","value_base64":"MQ==","version":"1@x"},{"key_base64":"/w==","value":"2","version":"2@x"}],"next":"x"}"#;
    let second = r#"{"entries":[],"next":null}"#;
    let (output, asked) =
        against(&[&ok("", first), &ok("", second)], &["scan", "orders", "--prefix", "p q"], b"");
    assert!(asked[0].starts_with("GET /v1/trees/orders/keys?prefix=p%20q&limit=1000 "), "{}", asked[0]);
    assert!(asked[1].contains("&after=%FF "), "{}", asked[1]);
    assert_eq!(output.stdout, b"a\t1\n\xff\t2\n");
}

#[test]
fn watch_prints_whole_lines_without_keep_alives_until_the_server_ends() {
    let lines = "{\"n\":1}\n\n{\"n\":2}\n{\"cut";
    let (output, asked) = against(&[&ok("", lines)], &["watch", "orders", "--resolved"], b"");
    assert!(
        asked[0].starts_with("GET /v1/trees/orders/changes?from=now&format=json&resolved=true "),
        "{}",
        asked[0]
    );
    assert_eq!(stdout(&output), "{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(output.status.code(), Some(3));
    let (_, asked) = against(&[&ok("", "")], &["watch", "orders", "--from", "c1.x"], b"");
    assert!(asked[0].contains("/changes?cursor=c1%2Ex&"), "{}", asked[0]);
}

const STATUS: &str = r#"{"cluster":"eu","version":"0.1.0","boot":"1","uptime_seconds":61,
  "listen":{"http":"127.0.0.1:1","replication":null},"health":{"state":"degraded","reasons":["peer us is away"]},
  "trees":[{"name":"orders","partitions":8,"entries":3,"frontier":{"eu":"9"},
    "log":{"first":"0","next":"4","retained_bytes":2048,"physical_bytes":1048576,"pinned_by":null}}],
  "peers":[{"id":"us","tree":"orders","direction":"send","state":"fell_off","reason":"too old",
    "lag":{"entries":2,"bytes":10,"seconds":0.25},"last_ack":null}],"sinks":[]}"#;

#[test]
fn status_is_a_table_for_people_and_raw_with_json() {
    let (output, _) = against(&[&ok("", STATUS)], &["status"], b"");
    let text = stdout(&output);
    for part in ["cluster eu", "health degraded", "up 1m 1s", "! peer us is away", "1.0 MiB", "0..4"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(text.contains("fell off  2 entries, 10 B, 0.250 s  too old"), "{text}");
    let (output, _) = against(&[&ok("", STATUS)], &["status", "--json"], b"");
    let sent: serde_json::Value = serde_json::from_str(STATUS).expect("json");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&stdout(&output)).expect("json"), sent);
    let (output, _) = against(&[&ok("", STATUS)], &["peers", "list"], b"");
    assert!(stdout(&output).starts_with("PEER  TREE"));
}

#[test]
fn a_token_file_becomes_the_authorization() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"s3cret\n").expect("written");
    let path = file.path().to_str().expect("text");
    let (_, asked) = against(&[&ok("", "")], &["delete", "orders", "k", "--token-file", path], b"");
    assert!(asked[0].to_lowercase().contains("authorization: bearer s3cret\r\n"), "{}", asked[0]);
}

#[test]
fn an_unreachable_server_is_exit_3_and_names_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let output = tidewire(&["get", "orders", "k"], Some(&url), b"");
    assert_eq!(output.status.code(), Some(3));
    assert!(complaint(&output).contains(&url));
}

#[test]
fn config_check_prints_one_line_for_each_problem() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"[cluster]\nid = \"eu\"\n[listen]\nhtpp = \"x\"\nreplication = 1\n").expect("written");
    let path = file.path().to_str().expect("text");
    let output = tidewire(&["config", "check", path], None, b"");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("line 4: listen.htpp: unknown key; did you mean \"http\"?"), "{text}");
    assert!(lines[1].contains("line 5: listen.replication: 1 is not allowed"), "{text}");
}

#[test]
fn the_example_passes_its_own_check_and_is_shown() {
    let example = tidewire(&["config", "example"], None, b"");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&example.stdout).expect("written");
    let path = file.path().to_str().expect("text");
    assert_eq!(stdout(&tidewire(&["config", "check", path], None, b"")), "ok\n");
    assert!(stdout(&tidewire(&["config", "show", path], None, b"")).contains("id = \"eu-west\""));
}

#[test]
fn a_wrong_command_line_is_exit_2_in_one_line() {
    let output = tidewire(&["statsu"], None, b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("'status'"));
}

#[test]
fn what_is_no_address_and_no_command_is_a_mistake_of_usage() {
    for url in [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:x",
        "http://",
        "http://h/?q",
        "h:1",
    ] {
        let output = tidewire(&["get", "orders", "k"], Some(url), b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("is not an address"), "{url}: {said}");
    }
    for command in [&[][..], &["peers"]] {
        let output = tidewire(command, None, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), said.trim()),
            (Some(2), "tidewire: a command is missing; see `tidewire --help`")
        );
    }
}
