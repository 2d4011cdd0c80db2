//! [`Api`]: the HTTP API of one server, as the claims use it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;

use super::TREE;

/// An answer: status and body; an error if there was none.
pub(super) type Answer = Result<(u16, String), ureq::Error>;

/// A client with connections of its own.
#[derive(Debug)]
pub(super) struct Api {
    agent: Agent,
    base: String,
}

impl Api {
    pub(super) fn new(port: u16) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(Duration::from_secs(30)))
            .build()
            .new_agent();
        Self { agent, base: format!("http://127.0.0.1:{port}") }
    }

    fn ask(&self, path: &str) -> Answer {
        answer(self.agent.get(format!("{}{path}", self.base)).call())
    }

    /// An order without a body: status and what was said.
    pub(super) fn admin(&self, method: &str, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.base);
        let sent = match method {
            "GET" => self.agent.get(url).call(),
            "DELETE" => self.agent.delete(url).call(),
            _ => self.agent.post(url).send_empty(),
        };
        answer(sent).expect("the server answers")
    }

    pub(super) fn put(&self, key: &str, value: &[u8]) -> Answer {
        answer(self.agent.put(format!("{}/v1/trees/{TREE}/keys/{key}", self.base)).send(value))
    }

    /// Whether a put was acknowledged.
    pub(super) fn wrote(&self, key: &str, value: &str) -> bool {
        self.put(key, value.as_bytes()).is_ok_and(|(status, _)| status == 200)
    }

    pub(super) fn get(&self, key: &str) -> Answer {
        self.ask(&format!("/v1/trees/{TREE}/keys/{key}"))
    }

    /// The value of a key, if the server answers and has it.
    pub(super) fn value(&self, key: &str) -> Option<String> {
        self.get(key).ok().filter(|(status, _)| *status == 200).map(|(_, value)| value)
    }

    /// Whether a batch of sets was acknowledged.
    pub(super) fn wrote_batch(&self, entries: &[(String, String)]) -> bool {
        let ops: Vec<Value> =
            entries.iter().map(|(key, value)| json!({"op": "set", "key": key, "value": value})).collect();
        self.wrote_operations(&ops)
    }

    /// Whether a range delete was acknowledged.
    pub(super) fn deleted_range(&self, from: &str, to: &str) -> bool {
        let url = format!("{}/v1/trees/{TREE}/keys?from={from}&to={to}", self.base);
        answer(self.agent.delete(url).call()).is_ok_and(|(status, _)| status == 200)
    }

    /// Every change that the log retains, in its order.
    pub(super) fn all_changes(&self) -> Vec<Value> {
        let path = format!("{}/v1/trees/{TREE}/changes?from=beginning&resolved=true", self.base);
        let stream = self.agent.get(path).call().expect("the stream opens").into_body().into_reader();
        let lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
        let changes =
            lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_str(&line).expect("json"));
        changes.take_while(|line: &Value| line["resolved"].is_null()).collect()
    }

    /// Whether a batch was acknowledged.
    pub(super) fn wrote_operations(&self, ops: &[Value]) -> bool {
        let body = json!({"atomic": true, "ops": ops}).to_string();
        let sent = self.agent.post(format!("{}/v1/trees/{TREE}/batch", self.base)).send(body.as_bytes());
        answer(sent).is_ok_and(|(status, _)| status == 200)
    }

    fn json(&self, path: &str) -> Option<Value> {
        let (status, body) = self.ask(path).ok()?;
        (status == 200).then(|| serde_json::from_str(&body).expect("json"))
    }

    /// The digest of the tree and its entries, if the server answers.
    pub(super) fn digest(&self) -> Option<(String, u64)> {
        let answer = self.json(&format!("/v1/trees/{TREE}/digest"))?;
        Some((answer["digest"].as_str()?.to_owned(), answer["entries"].as_u64()?))
    }

    /// The links of the server, if it answers.
    pub(super) fn peers(&self) -> Option<Vec<Value>> {
        self.json("/v1/status")?["peers"].as_array().cloned()
    }

    /// The link to or from a peer.
    pub(super) fn peer(&self, id: &str, direction: &str) -> Option<Value> {
        self.peers()?.into_iter().find(|peer| peer["id"] == id && peer["direction"] == direction)
    }

    /// The sum over the series of a counter; none if the server does not show it.
    pub(super) fn counter(&self, name: &str) -> Option<f64> {
        let (_, text) = self.ask("/metrics").ok()?;
        let values = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let values: Vec<f64> = values
            .map(|line| line.rsplit(' ').next().expect("a last word").parse().expect("a number"))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// Every entry of the tree.
    pub(super) fn scan(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::new();
        let mut after = String::new();
        loop {
            let page = self
                .json(&format!("/v1/trees/{TREE}/keys?limit=5000{after}"))
                .expect("the server answers a scan");
            for entry in page["entries"].as_array().expect("entries") {
                let key = entry["key"].as_str().expect("the keys are text").to_owned();
                let value = entry["value_base64"].as_str().expect("a value");
                let value = STANDARD.decode(value).expect("base64");
                entries.insert(key, String::from_utf8(value).expect("the values are text"));
            }
            if page["next"].is_null() {
                return entries;
            }
            let last = entries.keys().next_back().expect("a page that is not the last has entries");
            assert!(!after.ends_with(last.as_str()), "the pages go on: {last}");
            after = format!("&after={last}");
        }
    }
}

fn answer(sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let mut response = sent?;
    let body = response.body_mut().with_config().limit(64 << 20).read_to_string()?;
    Ok((response.status().as_u16(), body))
}
