//! Questions to bytes, and bytes to answers.
//!
//! A reply is untrusted: what it names is judged by [`SeedList`](cmap_core::topology::seed_list::SeedList).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};
use simple_dns::rdata::RData;
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

/// The message that asks for the records of `name`.
pub(super) fn question(id: u16, name: &str, kind: Kind) -> io::Result<Vec<u8>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name in DNS: {error}"));
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
    packet.build_bytes_vec().map_err(invalid)
}

/// The records in `reply`, which answers the question with this id; none if there is no such name.
pub(super) fn answer(id: u16, reply: &[u8]) -> io::Result<Vec<ResourceRecord<'_>>> {
    let packet = parse(reply)?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it answered another question"));
    }
    let code = packet.rcode();
    if code == RCODE::NoError {
        Ok(packet.answers)
    } else if code == RCODE::NameError {
        Ok(Vec::new())
    } else {
        Err(io::Error::other(format!("it gave no answer ({code:?})")))
    }
}

/// The SRV records in a reply that [`answer`] accepted.
pub(super) fn srv(reply: &[u8]) -> io::Result<Vec<SrvRecord>> {
    let read = |record: &ResourceRecord<'_>| {
        let RData::SRV(srv) = &record.rdata else { return None };
        let time_to_live = Duration::from_secs(record.ttl.into());
        Some(SrvRecord::new(srv.target.to_string(), srv.port, time_to_live))
    };
    Ok(records(reply)?.iter().filter_map(read).collect())
}

/// The TXT records in a reply that [`answer`] accepted.
pub(super) fn txt(reply: &[u8]) -> io::Result<Vec<TxtRecord>> {
    let read = |record: ResourceRecord<'_>| {
        let RData::TXT(txt) = record.rdata else { return None };
        Some(String::try_from(txt).map(TxtRecord::new))
    };
    let texts: Result<_, _> = records(reply)?.into_iter().filter_map(read).collect();
    texts.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a TXT record is not UTF-8"))
}

/// The addresses in a reply that [`answer`] accepted.
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

    #[test]
    fn a_question_asks_for_one_name() {
        let bytes = question(7, NAME, Kind::Srv).unwrap();

        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.id(), packet.questions.len()), (7, 1));
        assert_eq!(packet.questions[0].qname.to_string(), NAME);
        assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED) && !packet.has_flags(PacketFlag::RESPONSE));
        assert_eq!(question(7, &"a".repeat(300), Kind::Txt).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn records_of_the_kind_that_was_asked_for_are_read() {
        let text = TXT::new().with_string("replicaS").and_then(|text| text.with_string("et=rs")).unwrap();
        let reply = reply(vec![srv_record("b.example.com"), RData::TXT(text)], RCODE::NoError);

        assert_eq!(srv(&reply).unwrap(), [SrvRecord::new("b.example.com", 27018, Duration::from_secs(300))]);
        assert_eq!(txt(&reply).unwrap(), [TxtRecord::new("replicaSet=rs")]);
        assert_eq!(answer(7, &reply).unwrap().len(), 2);
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

        assert!(answer(7, &reply).unwrap().is_empty() && srv(&reply).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let good = reply(vec![srv_record("b.example.com")], RCODE::NoError);
        let question = question(7, NAME, Kind::Srv).unwrap();

        assert!(answer(8, &good).is_err(), "the id is another one");
        assert!(answer(7, &question).is_err(), "a question is no answer");
        assert!(answer(7, &reply(Vec::new(), RCODE::ServerFailure)).unwrap_err().to_string().contains("ServerFailure"));
    }

    #[test]
    fn a_reply_that_was_cut_or_changed_anywhere_is_read_without_a_panic() {
        let good = reply(vec![srv_record("b.example.com"), srv_record("c.example.com")], RCODE::NoError);
        for position in 0..good.len() {
            let _ = (srv(&good[..position]), txt(&good[..position]));
            for change in [0x01, 0x3f, 0xc0, 0xff] {
                let mut changed = good.clone();
                changed[position] ^= change;
                let _ = (srv(&changed), txt(&changed));
            }
        }
    }
}
