//! A socket from when it was accepted: its TLS handshake, the judgement of its greeting, and its time in the lot.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{
    ALPN, ApplicationOutput, ApplicationSide, ChannelBinding, EXPORTER_LABEL, Ending, GREETING_LIMIT, Hello, NotParked,
    ProofError, Refusal, SocketId, StartFailure, StartPhase,
};
use cmap_core::time::Instant;

use super::certificates::names;
use super::conversation::{Conversation, Next};
use super::error::SocketEnded;
use super::event::ReverseEvent;
use super::hand_over::Promise;
use super::orders::{Order, Orders};
use super::shared::{Connected, DialedStream, Shared};
use crate::runtime::Runtime;
use crate::socket::read_budget::BudgetedStream;
use crate::socket::transport::Transport;
use crate::tls;

/// How long an agent stays away that may not speak for a member.
const RETRY_UNAUTHORIZED: Duration = Duration::from_secs(60);

/// How long an agent stays away for which there is no place now.
const RETRY_LATER: Duration = Duration::from_secs(10);

/// A peer that has connected; perhaps an agent.
pub(super) struct Visitor<R: Runtime> {
    shared: Arc<Shared<R>>,
    socket: SocketId,
    orders: Arc<Orders<R::Stream>>,
    from: SocketAddr,
    /// Whose socket is parked.
    member: Option<ServerAddress>,
    /// Whether it has said HELLO.
    has_greeted: bool,
    /// How its greeting ended, if it was not parked.
    ended: NotParked,
}

/// A socket that is to become a connection.
type Requested<R> = Option<Promise<Connected<<R as Runtime>::Stream>>>;

impl<R: Runtime> Visitor<R> {
    pub(super) fn new(
        shared: Arc<Shared<R>>,
        socket: SocketId,
        orders: Arc<Orders<R::Stream>>,
        from: SocketAddr,
    ) -> Self {
        Self { shared, socket, orders, from, member: None, has_greeted: false, ended: NotParked::Left }
    }

    /// Sees to the socket until it is a connection, or has ended.
    pub(super) async fn attend(mut self, stream: R::Stream) {
        if let Err(why) = self.receive(stream).await {
            if why.is_a_failure() {
                self.ended = if self.has_greeted { NotParked::Refused } else { NotParked::Unheard };
            }
            let from = self.from;
            match self.member.clone() {
                Some(member) => self.shared.teller.tell(&ReverseEvent::Ended { member, from, why }),
                None => self.shared.teller.tell_not_parked(self.shared.clock.now(), from, why),
            }
        }
    }

    async fn receive(&mut self, stream: R::Stream) -> Result<(), SocketEnded> {
        let clock = self.shared.clock.clone();
        let accepted = clock.now();
        let stream = self.shake_hands(stream, accepted).await?;
        let side = ApplicationSide::new(accepted);
        let conversation = Conversation::new(stream, clock, Arc::clone(&self.orders));
        self.converse(conversation, side).await
    }

    async fn shake_hands(&self, stream: R::Stream, accepted: Instant) -> Result<DialedStream<R::Stream>, SocketEnded> {
        let socket = Transport::Clear(BudgetedStream::new::<R>(stream));
        let handshake = tls::accept(&self.shared.tls, socket);
        let mut handshake = pin!(self.shared.clock.before(Some(accepted + GREETING_LIMIT), handshake));
        let shaken = poll_fn(|cx| match self.orders.poll_next(cx) {
            // Before it is parked there is no order but to leave.
            Poll::Ready(_) => Poll::Ready(Err(SocketEnded::from(Ending::Left))),
            Poll::Pending => handshake.as_mut().poll(cx).map(Ok),
        });
        let stream = match shaken.await? {
            Some(stream) => Box::new(stream?),
            None => return Err(Ending::NoGreeting.into()),
        };
        match stream.session().connection().alpn_protocol() {
            Some(protocol) if protocol == ALPN => Ok(stream),
            Some(_) | None => Err(SocketEnded::OtherProtocol),
        }
    }

    async fn converse(
        &mut self,
        mut conversation: Conversation<R>,
        mut side: ApplicationSide,
    ) -> Result<(), SocketEnded> {
        let clock = self.shared.clock.clone();
        let mut promise: Requested<R> = None;
        let mut refused = None;
        loop {
            while let Some(output) = side.poll_output() {
                match output {
                    ApplicationOutput::Greeted(hello) => {
                        self.has_greeted = true;
                        if let Err((refusal, why)) = self.judge(&hello, &conversation.stream) {
                            let retry_after = match refusal {
                                Refusal::Full => RETRY_LATER,
                                Refusal::Unauthorized
                                | Refusal::UnknownMember
                                | Refusal::Superseded
                                | Refusal::Version => RETRY_UNAUTHORIZED,
                            };
                            side.refuse(clock.now(), refusal, retry_after);
                            refused = Some(why);
                        } else {
                            side.park(clock.now(), self.shared.keep_alive, self.shared.wanted);
                            let (member, from) = (hello.member, self.from);
                            self.shared.teller.tell(&ReverseEvent::Parked { member, from });
                        }
                    }
                    ApplicationOutput::Started(rest) => return self.hand_over(conversation, promise, &rest),
                    ApplicationOutput::Close(ending) => {
                        conversation.say(&side.poll_transmit().unwrap_or_default());
                        if let (Ending::StartFailed(failure), Some(promise)) = (&ending, promise.take()) {
                            promise.fulfil(Err(failure.clone()));
                        }
                        conversation.end().await;
                        return Err(refused.unwrap_or(SocketEnded::Ended(ending)));
                    }
                }
            }
            conversation.say(&side.poll_transmit().unwrap_or_default());
            match conversation.next(side.poll_timeout(), promise.as_ref()).await.map_err(SocketEnded::Lost)? {
                Next::Bytes(count) => side.handle_bytes(clock.now(), conversation.heard(count)),
                Next::Due => side.handle_timeout(clock.now()),
                Next::Unwanted => side.leave(clock.now()),
                Next::Order(Order::Leave) => side.leave(clock.now()),
                Next::Order(Order::Start { demand, promise: wanted }) => {
                    if demand > 0 {
                        side.demand(clock.now(), demand);
                    }
                    if side.start(clock.now()) {
                        wanted.begin();
                        promise = Some(wanted);
                    }
                }
            }
        }
    }

    /// Parks the socket, if its agent may speak for the member.
    fn judge(&mut self, hello: &Hello, stream: &DialedStream<R::Stream>) -> Result<(), (Refusal, SocketEnded)> {
        let Hello { member, boot, .. } = hello;
        self.check(hello, stream).map_err(|why| (Refusal::Unauthorized, why))?;
        self.shared
            .park(self.socket, self.from, member, *boot)
            .map_err(|refusal| (refusal, SocketEnded::Refused { member: member.clone(), refusal }))?;
        self.member = Some(member.clone());
        Ok(())
    }

    fn check(&self, hello: &Hello, stream: &DialedStream<R::Stream>) -> Result<(), SocketEnded> {
        if hello.proof.is_none() && self.shared.trusts_certificates {
            let missing = || ProofError::Missing { member: hello.member.clone() }.into();
            return names(stream.session(), &hello.member).map_err(|why| why.unwrap_or_else(missing));
        }
        let binding = ChannelBinding(stream.session().export(EXPORTER_LABEL)?);
        Ok(self.shared.tokens.verify(hello, &binding)?)
    }

    /// The member is connected.
    fn hand_over(&self, conversation: Conversation<R>, promise: Requested<R>, rest: &[u8]) -> Result<(), SocketEnded> {
        if !rest.is_empty() {
            let why = self.member.clone().map_or(SocketEnded::Ended(Ending::Left), SocketEnded::SpokeFirst);
            if let Some(promise) = promise {
                // Another socket would end the same way.
                promise.fulfil(Err(StartFailure { phase: StartPhase::Other, error: why.to_string() }));
            }
            return Err(why);
        }
        if let Some(promise) = promise {
            promise.fulfil(Ok(conversation.stream));
        }
        Ok(())
    }
}

impl<R: Runtime> Drop for Visitor<R> {
    fn drop(&mut self) {
        match &self.member {
            Some(member) => self.shared.release(self.socket, member),
            None => self.shared.dismiss(self.socket, self.from, self.ended),
        }
    }
}
