//! What operators order over HTTP: sinks, dead letters, peers.

use axum::body::Body;
use axum::http::Method;
use axum::response::Response;
use serde_json::json;
use tidewire_core::error::Error;

use super::api::Api;
use super::failure::invalid;
use super::json::json_answer;
use super::query::Query;
use crate::config::Peer;

/// Largest body of an order.
const ORDER_BYTES: usize = 64 * 1024;

/// A resource below `/v1/admin/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdminResource {
    /// All sinks.
    Sinks,
    /// One sink, by name.
    Sink(String),
    /// Something to do with one sink.
    SinkAction(String, SinkAction),
    /// What one sink's destination does not take.
    DeadLetters(String),
    /// One of those: of a sink, an origin, a partition and an offset.
    SinkLetter(String, String),
    /// Deliver one of those after all.
    SinkLetterReplay(String, String),
    /// What a tree cannot apply.
    TreeLetters(String),
    /// One of those: of a tree, an origin, a partition and an offset.
    TreeLetter(String, String),
    /// Apply one of those after all.
    TreeLetterReplay(String, String),
    /// All links.
    Peers,
    /// One peer.
    Peer(String),
    /// A snapshot of a peer.
    PeerReseed(String),
    /// Something to do with one peer.
    PeerAction(String, PeerAction),
}

/// What can be done with a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkAction {
    /// Stop it until it is resumed.
    Pause,
    /// End the pause.
    Resume,
    /// Try again at once.
    Restart,
    /// End it and free what it holds.
    Remove,
}

/// What can be done with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAction {
    /// Stop its links until it is resumed.
    Pause,
    /// End a pause, or let it return if it was sealed out.
    Resume,
    /// Drop its links and dial again.
    Restart,
    /// Count it out of everything.
    Seal,
}

/// What can be done with the dead letters of a tree or a sink; one of them is named by `ORIGIN/PARTITION/OFFSET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterAction {
    /// List them.
    List,
    /// Show one, with its bytes.
    Show(String),
    /// Apply or deliver it after all.
    Replay(String),
    /// Give it up.
    Drop(String),
}

impl LetterAction {
    fn of_one(method: &Method, dot: String) -> Self {
        if *method == Method::DELETE { Self::Drop(dot) } else { Self::Show(dot) }
    }
}

/// An order of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Something with a sink; without a tree, the only one of that name.
    Sink {
        /// Its name.
        name: String,
        /// Its tree.
        tree: Option<String>,
        /// What.
        action: SinkAction,
    },
    /// Something with what a sink's destination does not take.
    DeadLetters {
        /// The sink's name.
        name: String,
        /// Its tree.
        tree: Option<String>,
        /// What.
        action: LetterAction,
    },
    /// Something with what a tree cannot apply.
    Letters {
        /// The tree.
        tree: String,
        /// What.
        action: LetterAction,
    },
    /// Exchange writes with another cluster, also after a restart.
    AddPeer(Peer),
    /// Something with a peer.
    Peer {
        /// Its id.
        id: String,
        /// What.
        action: PeerAction,
    },
    /// Take a snapshot from it.
    ReseedPeer {
        /// Its id.
        id: String,
        /// Of one tree; else of all.
        tree: Option<String>,
    },
    /// End the exchange.
    RemovePeer {
        /// Its id.
        id: String,
        /// Also one that the configuration lists: it comes back with the next start or reload.
        until_restart: bool,
    },
}

impl AdminResource {
    /// The resource of what stands behind `/v1/admin/`, decoded segment by segment.
    pub(super) fn parse(segments: &[String]) -> Option<Self> {
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        Some(match words.as_slice() {
            ["sinks"] => Self::Sinks,
            ["sinks", name] => Self::Sink((*name).to_owned()),
            ["sinks", name, "pause"] => Self::SinkAction((*name).to_owned(), SinkAction::Pause),
            ["sinks", name, "resume"] => Self::SinkAction((*name).to_owned(), SinkAction::Resume),
            ["sinks", name, "restart"] => Self::SinkAction((*name).to_owned(), SinkAction::Restart),
            ["dead-letters", name] => Self::DeadLetters((*name).to_owned()),
            ["dead-letters", name, origin, partition, offset] => {
                Self::SinkLetter((*name).to_owned(), format!("{origin}/{partition}/{offset}"))
            }
            ["dead-letters", name, origin, partition, offset, "replay"] => {
                Self::SinkLetterReplay((*name).to_owned(), format!("{origin}/{partition}/{offset}"))
            }
            ["trees", tree, "dead-letters"] => Self::TreeLetters((*tree).to_owned()),
            ["trees", tree, "dead-letters", origin, partition, offset] => {
                Self::TreeLetter((*tree).to_owned(), format!("{origin}/{partition}/{offset}"))
            }
            ["trees", tree, "dead-letters", origin, partition, offset, "replay"] => {
                Self::TreeLetterReplay((*tree).to_owned(), format!("{origin}/{partition}/{offset}"))
            }
            ["peers"] => Self::Peers,
            ["peers", name] => Self::Peer((*name).to_owned()),
            ["peers", name, "reseed"] => Self::PeerReseed((*name).to_owned()),
            ["peers", name, "pause"] => Self::PeerAction((*name).to_owned(), PeerAction::Pause),
            ["peers", name, "resume"] => Self::PeerAction((*name).to_owned(), PeerAction::Resume),
            ["peers", name, "restart"] => Self::PeerAction((*name).to_owned(), PeerAction::Restart),
            ["peers", name, "seal"] => Self::PeerAction((*name).to_owned(), PeerAction::Seal),
            _ => return None,
        })
    }

    /// The parameters that an order takes.
    fn parameters(&self, method: &Method) -> &'static [&'static str] {
        match self {
            Self::Sink(_) | Self::SinkAction(..) | Self::DeadLetters(_) | Self::PeerReseed(_) => &["tree"],
            Self::SinkLetter(..) | Self::SinkLetterReplay(..) => &["tree"],
            Self::Peer(_) if *method == Method::DELETE => &["until_restart"],
            _ => &[],
        }
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            Self::Sinks | Self::DeadLetters(_) | Self::TreeLetters(_) => "GET, HEAD",
            Self::TreeLetter(..) | Self::SinkLetter(..) => "GET, HEAD, DELETE",
            Self::TreeLetterReplay(..) | Self::SinkLetterReplay(..) => "POST",
            Self::Sink(_) | Self::Peer(_) => "DELETE",
            Self::SinkAction(..) | Self::PeerReseed(_) | Self::PeerAction(..) => "POST",
            Self::Peers => "GET, HEAD, POST",
        }
    }
}

impl Api {
    pub(super) async fn admin(
        &self,
        resource: AdminResource,
        method: &Method,
        query: Option<&str>,
        body: &mut Body,
    ) -> Result<Response, Error> {
        let mut query = Query::parse(query, resource.parameters(method))?;
        if !(resource == AdminResource::Peers && *method == Method::POST) {
            let received = self.receive(body, ORDER_BYTES, "the limit of an order").await?;
            if !received.bytes.is_empty() {
                return Err(invalid(
                    "this order takes no body: what it needs stands in its path and its parameters",
                ));
            }
        }
        let tree = query.take_text("tree")?;
        let until_restart = match query.take_text("until_restart")?.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(invalid("until_restart is true or false")),
        };
        let order = match resource {
            AdminResource::Sinks => return Ok(json_answer(&json!({"sinks": self.site.status().sinks}))),
            AdminResource::Sink(name) => Order::Sink { name, tree, action: SinkAction::Remove },
            AdminResource::SinkAction(name, action) => Order::Sink { name, tree, action },
            AdminResource::DeadLetters(name) => Order::DeadLetters { name, tree, action: LetterAction::List },
            AdminResource::SinkLetter(name, dot) => {
                Order::DeadLetters { name, tree, action: LetterAction::of_one(method, dot) }
            }
            AdminResource::SinkLetterReplay(name, dot) => {
                Order::DeadLetters { name, tree, action: LetterAction::Replay(dot) }
            }
            AdminResource::TreeLetters(tree) => Order::Letters { tree, action: LetterAction::List },
            AdminResource::TreeLetter(tree, dot) => {
                Order::Letters { tree, action: LetterAction::of_one(method, dot) }
            }
            AdminResource::TreeLetterReplay(tree, dot) => {
                Order::Letters { tree, action: LetterAction::Replay(dot) }
            }
            AdminResource::Peers if *method == Method::POST => {
                let received = self.receive(body, ORDER_BYTES, "the limit of an order").await?;
                let peer = serde_json::from_slice(&received.bytes)
                    .map_err(|error| invalid(format!("the body is no peer: {error}")))?;
                Order::AddPeer(peer)
            }
            AdminResource::Peers => {
                let status = self.site.status();
                return Ok(json_answer(&json!({"peers": status.peers, "members": status.members})));
            }
            AdminResource::Peer(id) => Order::RemovePeer { id, until_restart },
            AdminResource::PeerAction(id, action) => Order::Peer { id, action },
            AdminResource::PeerReseed(id) => Order::ReseedPeer { id, tree },
        };
        Ok(json_answer(&self.site.carry_out(order).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<AdminResource> {
        AdminResource::parse(&path.split('/').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_path_below_admin_names_one_thing_to_do() {
        assert_eq!(parse("sinks/a/pause"), Some(AdminResource::SinkAction("a".into(), SinkAction::Pause)));
        let letter = parse("trees/t/dead-letters/eu/3/17/replay");
        assert_eq!(letter, Some(AdminResource::TreeLetterReplay("t".into(), "eu/3/17".into())));
        assert_eq!(parse("peers/a/reseed").map(|resource| resource.methods()), Some("POST"));
        assert_eq!(parse("peers/a/seal"), Some(AdminResource::PeerAction("a".into(), PeerAction::Seal)));
        assert_eq!(parse("sinks/a").map(|resource| resource.methods()), Some("DELETE"));
        let [get, delete] = [Method::GET, Method::DELETE];
        assert_eq!(AdminResource::Peer("a".into()).parameters(&delete), ["until_restart"]);
        assert!(
            AdminResource::PeerAction("a".into(), PeerAction::Pause).parameters(&Method::POST).is_empty()
        );
        assert!(
            AdminResource::TreeLetters("t".into()).parameters(&get).is_empty(),
            "its tree is in its path"
        );
        for bad in ["", "sink", "sinks/a/halt", "sinks/a/pause/now", "dead-letters", "peers/a/b"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
