//! The dialling side: a stream for each link, on a TCP connection that links to the same url share.

use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::tasks::Tasks;
use tidewire_core::transport::Link;
use tidewire_core::transport::wire::REPLICATE;
use tokio::time::timeout;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, client::Grpc};

use super::codec::FrameCodec;
use super::config::{
    CONNECT_TIMEOUT, CONNECTION_WINDOW_BYTES, FRAME_BYTES, HEADER_BYTES, KEEP_ALIVE, STREAM_WINDOW_BYTES,
};
use super::connections::Connections;
use super::error::from_status;
use super::halves::{Out, Side, link};

/// Opens a link to a url like `http://us-east.example:7400`. `lingering` owns what outlives the link for a moment.
pub(super) async fn dial(
    url: &str,
    message_bytes: usize,
    lingering: &Tasks,
    connections: &Connections,
) -> Result<Link, LinkError> {
    let uri = check(url)?;
    let seat = connections.seat(url, || connect(uri)).await;
    let (out, frames) = Out::new(|frame| frame);
    let request = Request::new(frames);
    let mut client = Grpc::new(seat.channel())
        .max_decoding_message_size(message_bytes)
        .max_encoding_message_size(message_bytes);
    let answer = async {
        client.ready().await.map_err(|error| unreachable(url, &error))?;
        let path = PathAndQuery::from_static(REPLICATE);
        client.streaming(request, path, FrameCodec).await.map_err(|status| from_status(url, &status))
    };
    // Names are looked up inside, which the connect timeout does not cover.
    let answer = timeout(CONNECT_TIMEOUT, answer).await;
    let frames = match answer.map_err(|_| no_answer(url)).and_then(|answer| answer) {
        Ok(answer) => answer.into_inner(),
        Err(error) => {
            seat.broke();
            return Err(error);
        }
    };
    Ok(link(url.to_owned(), out, frames, None, message_bytes, Side::Dialling(lingering.clone(), seat)))
}

/// Refuses what cannot work before anything is tried.
fn check(url: &str) -> Result<Uri, LinkError> {
    let refuse = |why: &str| Err(LinkError::new(LinkErrorKind::Config, format!("peer url {url:?}: {why}")));
    let Ok(uri) = url.parse::<Uri>() else {
        return refuse("not a url; it looks like http://us-east.example:7400");
    };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return refuse("TLS does not exist yet; use http:// on a network you trust"),
        _ => return refuse("it must begin with http://"),
    }
    if uri.port_u16().is_none_or(|port| port == 0) {
        return refuse("it must name a port; peers listen on 7400 by default");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return refuse("it must end after the port");
    }
    Ok(uri)
}

/// A connection, which is made when its first stream is opened.
fn connect(uri: Uri) -> Channel {
    Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .connect_lazy()
}

fn no_answer(url: &str) -> LinkError {
    LinkError::new(LinkErrorKind::Unreachable, format!("{url}: no answer in {CONNECT_TIMEOUT:?}"))
}

fn unreachable(url: &str, error: &tonic::transport::Error) -> LinkError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    LinkError::new(LinkErrorKind::Unreachable, format!("{url}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_work_is_refused_with_the_reason() {
        for (url, reason) in [
            ("https://a:7400", "TLS does not exist yet"),
            ("a:7400", "must begin with http://"),
            ("ftp://a:7400", "must begin with http://"),
            ("http://a", "must name a port"),
            ("http://a:0", "must name a port"),
            ("http://a:7400/path", "end after the port"),
            ("no address at all", "not a url"),
        ] {
            let error = check(url).expect_err(url);
            assert_eq!(error.kind(), LinkErrorKind::Config);
            assert!(error.to_string().contains(reason), "{error}");
        }
        for url in ["http://127.0.0.1:7400", "http://us-east.example:7400/", "http://[::1]:7400"] {
            check(url).expect(url);
        }
    }
}
