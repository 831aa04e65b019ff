//! The addresses of a host, of both versions: asked for at once, because a name server that does not answer costs its time then
//! only once.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use super::ask;
use super::message::{self, Kind};
use crate::runtime::Runtime;

/// How long addresses of the other version are waited for when some of one are there. Some name servers never answer a question
/// for version 6.
const FOR_THE_OTHERS: Duration = Duration::from_secs(1);

type Answer = io::Result<Vec<IpAddr>>;

/// The addresses that these name servers know. An error, that of version 4 first, only if none is found.
pub(crate) async fn addresses<R: Runtime>(runtime: &R, servers: &[SocketAddr], host: &str) -> Answer {
    let mut of_version_4 = pin!(of_kind(runtime, servers, host, Kind::A));
    let mut of_version_6 = pin!(of_kind(runtime, servers, host, Kind::Aaaa));
    let mut end = None;
    let (mut four, mut six) = (None, None);
    poll_fn(|cx| {
        advance(&mut four, of_version_4.as_mut(), cx);
        advance(&mut six, of_version_6.as_mut(), cx);
        if four.is_some() && six.is_some() {
            return Poll::Ready(());
        }
        if !has_addresses(four.as_ref()) && !has_addresses(six.as_ref()) {
            return Poll::Pending;
        }
        end.get_or_insert_with(|| Box::pin(runtime.sleep_until(runtime.now() + FOR_THE_OTHERS))).as_mut().poll(cx)
    })
    .await;
    let (mut found, mut error) = (Vec::new(), None);
    for answer in [four, six].into_iter().flatten() {
        match answer {
            Ok(addresses) => found.extend(addresses),
            Err(of_version) => error = error.or(Some(of_version)),
        }
    }
    match error {
        Some(error) if found.is_empty() => Err(error),
        Some(_) | None => Ok(found),
    }
}

async fn of_kind<R: Runtime>(runtime: &R, servers: &[SocketAddr], host: &str, kind: Kind) -> Answer {
    message::addresses(&ask(runtime, servers, host, kind).await?)
}

/// Goes on with a question that is not answered yet.
fn advance(answer: &mut Option<Answer>, question: Pin<&mut impl Future<Output = Answer>>, cx: &mut Context<'_>) {
    if answer.is_none()
        && let Poll::Ready(found) = question.poll(cx)
    {
        *answer = Some(found);
    }
}

fn has_addresses(answer: Option<&Answer>) -> bool {
    matches!(answer, Some(Ok(found)) if !found.is_empty())
}
