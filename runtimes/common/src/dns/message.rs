//! Questions to bytes, and bytes to answers.
//!
//! A reply is untrusted: what it names is judged by [`SeedList`](cmap_core::topology::seed_list::SeedList).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};
use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SRV records.
    Srv,
    /// TXT records.
    Txt,
    /// Addresses of version 4.
    A,
    /// Addresses of version 6.
    Aaaa,
}

/// A question, as it is sent over UDP and over TCP.
pub(super) struct QuestionBytes {
    id: u16,
    /// With the size of the longest reply that is taken (EDNS).
    pub(super) datagram: Vec<u8>,
    pub(super) message: Vec<u8>,
}

/// The longest reply that name servers may send over UDP: more may arrive in fragments, which get lost.
const LONGEST_DATAGRAM: u16 = 1_232;

/// The length of the header, which the question follows.
const HEADER: usize = 12;

impl QuestionBytes {
    /// Asks for the records of `name`.
    pub(super) fn new(id: u16, name: &str, kind: Kind) -> io::Result<Self> {
        let invalid =
            |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name in DNS: {error}"));
        let kind = match kind {
            Kind::Srv => TYPE::SRV,
            Kind::Txt => TYPE::TXT,
            Kind::A => TYPE::A,
            Kind::Aaaa => TYPE::AAAA,
        };
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).map_err(invalid)?;
        packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
        let message = packet.build_bytes_vec().map_err(invalid)?;
        *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: LONGEST_DATAGRAM, version: 0 });
        Ok(Self { id, datagram: packet.build_bytes_vec().map_err(invalid)?, message })
    }

    /// Checks that a datagram answers the question, and as a whole. Anybody may send one with the name server's address, so it has
    /// to repeat the question.
    pub(super) fn check_datagram(&self, reply: &[u8]) -> io::Result<()> {
        let asked = self.message.get(HEADER..).unwrap_or_default();
        let repeated = reply.get(HEADER..).and_then(|rest| rest.get(..asked.len()));
        if !repeated.is_some_and(|repeated| repeated.eq_ignore_ascii_case(asked)) {
            return Err(another_question());
        }
        let packet = parse(reply)?;
        check_id(self.id, &packet)?;
        if packet.has_flags(PacketFlag::TRUNCATION) {
            return Err(io::Error::other("its answer was cut"));
        }
        if matches!(packet.rcode(), RCODE::FormatError | RCODE::NotImplemented) {
            return Err(io::Error::other("it does not know EDNS"));
        }
        Ok(())
    }

    /// Checks that `reply` answers the question: with records, or by saying that there is no such name.
    pub(super) fn check(&self, reply: &[u8]) -> io::Result<()> {
        let packet = parse(reply)?;
        check_id(self.id, &packet)?;
        let code = packet.rcode();
        if matches!(code, RCODE::NoError | RCODE::NameError) {
            return Ok(());
        }
        Err(io::Error::other(format!("it gave no answer ({code:?})")))
    }
}

fn check_id(id: u16, packet: &Packet<'_>) -> io::Result<()> {
    let is_answer = packet.id() == id && packet.has_flags(PacketFlag::RESPONSE);
    if is_answer { Ok(()) } else { Err(another_question()) }
}

fn another_question() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it answered another question")
}

/// The SRV records in a reply that was checked.
pub(super) fn srv(reply: &[u8]) -> io::Result<Vec<SrvRecord>> {
    let read = |record: &ResourceRecord<'_>| {
        let RData::SRV(srv) = &record.rdata else { return None };
        let time_to_live = Duration::from_secs(record.ttl.into());
        Some(SrvRecord::new(srv.target.to_string(), srv.port, time_to_live))
    };
    Ok(records(reply)?.iter().filter_map(read).collect())
}

/// The TXT records in a reply that was checked.
pub(super) fn txt(reply: &[u8]) -> io::Result<Vec<TxtRecord>> {
    let read = |record: ResourceRecord<'_>| {
        let RData::TXT(txt) = record.rdata else { return None };
        Some(String::try_from(txt).map(TxtRecord::new))
    };
    let texts: Result<_, _> = records(reply)?.into_iter().filter_map(read).collect();
    texts.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a TXT record is not UTF-8"))
}

/// The addresses in a reply that was checked.
pub(super) fn addresses(reply: &[u8]) -> io::Result<Vec<IpAddr>> {
    let read = |record: &ResourceRecord<'_>| {
        if let RData::A(a) = &record.rdata {
            return Some(IpAddr::V4(Ipv4Addr::from_bits(a.address)));
        }
        let RData::AAAA(aaaa) = &record.rdata else { return None };
        Some(IpAddr::V6(Ipv6Addr::from_bits(aaaa.address)))
    };
    Ok(records(reply)?.iter().filter_map(read).collect())
}

fn records(reply: &[u8]) -> io::Result<Vec<ResourceRecord<'_>>> {
    let packet = parse(reply)?;
    Ok(if packet.rcode() == RCODE::NoError { packet.answers } else { Vec::new() })
}

fn parse(reply: &[u8]) -> io::Result<Packet<'_>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("its answer cannot be read: {error}"));
    Packet::parse(reply).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use simple_dns::rdata::{A, AAAA, SRV, TXT};

    use super::*;

    const NAME: &str = "_mongodb._tcp.a.example.com";

    /// The reply to the question with id 7 that has these records.
    fn reply(records: Vec<RData<'static>>, rcode: RCODE) -> Vec<u8> {
        let mut packet = Packet::new_reply(7);
        *packet.rcode_mut() = rcode;
        let name = || Name::new(NAME).unwrap();
        packet.answers.extend(records.into_iter().map(|data| ResourceRecord::new(name(), CLASS::IN, 300, data)));
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn srv_record(target: &'static str) -> RData<'static> {
        RData::SRV(SRV { priority: 1, weight: 2, port: 27018, target: Name::new(target).unwrap() })
    }

    fn question() -> QuestionBytes {
        QuestionBytes::new(7, NAME, Kind::Srv).unwrap()
    }

    #[test]
    fn a_question_asks_for_one_name() {
        let question = question();

        for bytes in [&question.message, &question.datagram] {
            let packet = Packet::parse(bytes).unwrap();
            assert_eq!((packet.id(), packet.questions.len()), (7, 1));
            assert_eq!(packet.questions[0].qname.to_string(), NAME);
            assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED) && !packet.has_flags(PacketFlag::RESPONSE));
        }
        let too_long = QuestionBytes::new(7, &"a".repeat(300), Kind::Txt);
        assert_eq!(too_long.err().unwrap().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_datagram_says_how_long_its_answer_may_be() {
        let question = question();

        assert_eq!(Packet::parse(&question.datagram).unwrap().opt().unwrap().udp_packet_size, LONGEST_DATAGRAM);
        assert!(Packet::parse(&question.message).unwrap().opt().is_none());
    }

    /// A reply over UDP, which repeats the question for `name`.
    fn datagram(id: u16, name: &str, flags: PacketFlag, rcode: RCODE) -> Vec<u8> {
        let mut packet = Packet::new_reply(id);
        packet.set_flags(flags);
        *packet.rcode_mut() = rcode;
        let name = Name::new(name).unwrap();
        packet.questions.push(Question::new(name, QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn a_datagram_that_answers_the_question_is_taken() {
        for (name, rcode) in [(NAME, RCODE::NoError), ("_MongoDB._tcp.A.example.com", RCODE::ServerFailure)] {
            let reply = datagram(7, name, PacketFlag::RESPONSE, rcode);
            assert!(question().check_datagram(&reply).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_datagram_that_may_be_forged_or_was_cut_is_not_taken() {
        let whole = PacketFlag::RESPONSE;
        let why = |reply: Vec<u8>| question().check_datagram(&reply).unwrap_err().to_string();

        assert_eq!(why(datagram(8, NAME, whole, RCODE::NoError)), "it answered another question");
        assert_eq!(why(datagram(7, "b.example.com", whole, RCODE::NoError)), "it answered another question");
        assert_eq!(why(question().message), "it answered another question");
        assert_eq!(why(datagram(7, NAME, whole | PacketFlag::TRUNCATION, RCODE::NoError)), "its answer was cut");
        assert_eq!(why(datagram(7, NAME, whole, RCODE::FormatError)), "it does not know EDNS");
    }

    #[test]
    fn records_of_the_kind_that_was_asked_for_are_read() {
        let text = TXT::new().with_string("replicaS").and_then(|text| text.with_string("et=rs")).unwrap();
        let reply = reply(vec![srv_record("b.example.com"), RData::TXT(text)], RCODE::NoError);

        assert_eq!(srv(&reply).unwrap(), [SrvRecord::new("b.example.com", 27018, Duration::from_secs(300))]);
        assert_eq!(txt(&reply).unwrap(), [TxtRecord::new("replicaSet=rs")]);
        assert!(question().check(&reply).is_ok());
    }

    #[test]
    fn addresses_of_both_versions_are_read() {
        let records = vec![RData::A(A { address: 0x7f00_0001 }), RData::AAAA(AAAA { address: 1 })];
        let reply = reply(records, RCODE::NoError);

        let expected = [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()];
        assert_eq!(addresses(&reply).unwrap(), expected);
    }

    #[test]
    fn a_name_that_does_not_exist_has_no_records() {
        let reply = reply(Vec::new(), RCODE::NameError);

        assert!(question().check(&reply).is_ok() && srv(&reply).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let good = reply(vec![srv_record("b.example.com")], RCODE::NoError);
        let failed = reply(Vec::new(), RCODE::ServerFailure);
        let why = |question: QuestionBytes, reply: &[u8]| question.check(reply).unwrap_err().to_string();

        let other = QuestionBytes::new(8, NAME, Kind::Srv).unwrap();
        assert_eq!(why(other, &good), "it answered another question");
        assert_eq!(why(question(), &question().message), "it answered another question");
        assert_eq!(why(question(), &failed), "it gave no answer (ServerFailure)");
    }

    #[test]
    fn a_reply_that_was_cut_or_changed_anywhere_is_read_without_a_panic() {
        let good = reply(vec![srv_record("b.example.com"), srv_record("c.example.com")], RCODE::NoError);
        for position in 0..good.len() {
            let _ = (srv(&good[..position]), txt(&good[..position]), question().check_datagram(&good[..position]));
            for change in [0x01, 0x3f, 0xc0, 0xff] {
                let mut changed = good.clone();
                changed[position] ^= change;
                let _ = (srv(&changed), txt(&changed), question().check_datagram(&changed));
            }
        }
    }
}
