//! A network without wires: clients of a deployment's members, and a clock that the test moves.

use core::time::Duration;
use std::collections::BTreeMap;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::time::Instant;
use cmap_core::wire::{
    CommandReply, Field, Flags, FrameReader, Limits, Message, MessageIds, MessageWriter, ServerError,
};
use cmap_test_server::{
    ClientId, Deployment, DeploymentConfig, DeploymentOutput, MemberConfig, MemberId, Peer, ServerConfig, ServerOutput,
    SetConfig,
};

pub(crate) struct Network {
    pub(crate) deployment: Deployment,
    pub(crate) now: Instant,
    sent: BTreeMap<Client, Vec<u8>>,
    hung_up: Vec<Client>,
    /// The instructions to listen, and to stop: host, or none.
    pub(crate) listening: Vec<(i32, Option<String>)>,
}

/// A connection to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    member: MemberId,
    id: ClientId,
}

pub(crate) fn server_config() -> ServerConfig {
    let mut config = ServerConfig::new("");
    config.time_of_day = Duration::from_secs(1_700_000_000);
    config
}

pub(crate) fn member(id: i32) -> MemberConfig {
    MemberConfig::new(id, format!("host{id}:27017"))
}

/// A replica set of members with these ids, of which the first is the primary.
pub(crate) fn set(members: impl IntoIterator<Item = MemberConfig>) -> DeploymentConfig {
    DeploymentConfig::replica_set(server_config(), SetConfig::new("rs0", members.into_iter().collect()))
}

impl Network {
    pub(crate) fn new(config: DeploymentConfig) -> Self {
        let deployment = Deployment::new(config, Instant::ORIGIN);
        let (sent, hung_up, listening) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { deployment, now: Instant::ORIGIN, sent, hung_up, listening }
    }

    /// A set of three electable members, whose primary is member 0.
    pub(crate) fn of_three() -> Self {
        Self::new(set((0..3).map(member)))
    }

    /// The same, whose secondaries lag behind.
    pub(crate) fn of_three_with_lag(lag: Duration) -> Self {
        let mut config = set((0..3).map(member));
        config.lag = lag;
        Self::new(config)
    }

    pub(crate) fn id(&self, member: i32) -> MemberId {
        self.deployment.members().map(|(id, _)| id).find(|id| id.get() == member).unwrap()
    }

    pub(crate) fn primary(&self) -> Option<i32> {
        self.deployment.primary().map(MemberId::get)
    }

    pub(crate) fn connect(&mut self, member: i32) -> Client {
        let member = self.id(member);
        let id = self.deployment.accept(self.now, member, Peer::at("127.0.0.1:50000"));
        self.drain();
        Client { member, id }
    }

    pub(crate) fn kill(&mut self, member: i32) {
        self.deployment.kill(self.now, self.id(member));
        self.drain();
    }

    pub(crate) fn restart(&mut self, member: i32) {
        self.deployment.restart(self.now, self.id(member));
        self.drain();
    }

    pub(crate) fn set_lag(&mut self, member: i32, lag: Duration) {
        self.deployment.set_lag(self.now, self.id(member), lag);
        self.drain();
    }

    /// Lets time pass; everything due by then happens.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.deployment.poll_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline lies behind");
            self.now = at;
            self.deployment.handle_timeout(at);
            self.drain();
            assert!(self.deployment.poll_timeout().is_none_or(|next| next > at), "the next timeout does not lie ahead");
        }
        self.now = end;
    }

    /// Sends a command.
    pub(crate) fn start(&mut self, client: Client, database: &str, command: &RawDocument) {
        self.start_with(client, Flags::NONE, database, command);
    }

    pub(crate) fn start_with(&mut self, client: Client, flags: Flags, database: &str, command: &RawDocument) {
        let mut bytes = Vec::new();
        let fields = [Field::String("$db", database)];
        MessageWriter::begin(&mut bytes, MessageIds::request(1), flags, command, &fields, &Limits::DEFAULT)
            .unwrap()
            .finish();
        self.deployment.handle_bytes(self.now, client.member, client.id, &bytes);
        self.drain();
    }

    /// The replies that have come since the last call.
    pub(crate) fn replies(&mut self, client: Client) -> Vec<RawDocumentBuf> {
        let bytes = self.sent.remove(&client).unwrap_or_default();
        let (mut input, mut frames, mut replies) = (&bytes[..], FrameReader::new(), Vec::new());
        while let Some(frame) = frames.read(&mut input, &Limits::DEFAULT).unwrap() {
            replies.push(Message::decode(frame, &Limits::DEFAULT).unwrap().body.to_owned());
        }
        replies
    }

    /// The reply to the command that was sent, if it is there.
    pub(crate) fn finish(&mut self, client: Client) -> Option<RawDocumentBuf> {
        let mut replies = self.replies(client);
        assert!(replies.len() <= 1, "{replies:?}");
        replies.pop()
    }

    /// A command that succeeds at once.
    #[track_caller]
    pub(crate) fn run(&mut self, client: Client, database: &str, command: &RawDocument) -> RawDocumentBuf {
        self.start(client, database, command);
        let reply = self.finish(client).unwrap();
        assert!(CommandReply::read(&reply).ok, "{reply:?}");
        reply
    }

    /// A command that fails at once.
    #[track_caller]
    pub(crate) fn fail(&mut self, client: Client, database: &str, command: &RawDocument) -> ServerError {
        self.start(client, database, command);
        CommandReply::read(&self.finish(client).unwrap()).failure().unwrap()
    }

    /// A command that succeeds at once on a new connection.
    #[track_caller]
    pub(crate) fn admin(&mut self, member: i32, command: &RawDocument) -> RawDocumentBuf {
        let client = self.connect(member);
        self.run(client, "admin", command)
    }

    pub(crate) fn hello(&mut self, member: i32) -> RawDocumentBuf {
        self.admin(member, &rawdoc! { "hello": 1 })
    }

    /// How many documents a member has in `db.c`.
    #[track_caller]
    pub(crate) fn count(&mut self, member: i32) -> i32 {
        let client = self.connect(member);
        let preference = rawdoc! { "mode": "secondaryPreferred" };
        self.run(client, "db", &rawdoc! { "count": "c", "$readPreference": preference }).get_i32("n").unwrap()
    }

    pub(crate) fn has_hung_up_on(&self, client: Client) -> bool {
        self.hung_up.contains(&client)
    }

    fn drain(&mut self) {
        while let Some(output) = self.deployment.poll_output() {
            match output {
                DeploymentOutput::Server { member, output: ServerOutput::Send { client: id, bytes } } => {
                    self.sent.entry(Client { member, id }).or_default().extend(bytes);
                }
                DeploymentOutput::Server { member, output: ServerOutput::HangUp { client: id } } => {
                    self.hung_up.push(Client { member, id });
                }
                DeploymentOutput::Listen { member, host } => self.listening.push((member.get(), Some(host))),
                DeploymentOutput::StopListening { member } => self.listening.push((member.get(), None)),
                other @ (DeploymentOutput::Server { .. } | _) => panic!("{other:?}"),
            }
        }
    }
}

/// An insertion of one document that a majority need not have.
pub(crate) fn insert(id: i32) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": 1 } }
}

/// The same, which may be sent again.
pub(crate) fn retryable_insert(id: i32, number: i64) -> RawDocumentBuf {
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] };
    let mut insert = insert(id);
    insert.append(bson::cstr!("lsid"), rawdoc! { "id": session });
    insert.append(bson::cstr!("txnNumber"), number);
    insert
}

/// The hosts in a field of a hello.
pub(crate) fn hosts(hello: &RawDocument, field: &str) -> Vec<String> {
    let hosts =
        hello.get_array(field).map(|hosts| hosts.into_iter().map(|host| host.unwrap().as_str().unwrap().into()));
    hosts.map(Iterator::collect).unwrap_or_default()
}
