//! Reads what was written for Perfetto: just the fields that tests ask for.

use std::collections::BTreeMap;

/// A file, read.
pub(crate) struct Events {
    /// The name and the parent of each track; processes have none.
    tracks: BTreeMap<u64, (String, u64)>,
    events: Vec<Event>,
}

/// What happened on a track.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) kind: Kind,
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) notes: Vec<(String, String)>,
    /// Flows that begin and end here.
    pub(crate) begins: Vec<u64>,
    pub(crate) ends: Vec<u64>,
    track: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin,
    End,
    Instant,
    Counter,
}

/// From a beginning to its end.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) track: String,
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) notes: Vec<(String, String)>,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Events {
    pub(crate) fn read(file: &[u8]) -> Self {
        let (mut tracks, mut events) = (BTreeMap::new(), Vec::new());
        for packet in Fields::of(file).all(1) {
            let packet = Fields::of(packet.bytes());
            for descriptor in packet.all(60) {
                let track = Fields::of(descriptor.bytes());
                let process = track.all(3).next().map(|process| Fields::of(process.bytes()).text(6));
                tracks.insert(track.number(1), (process.unwrap_or_else(|| track.text(2)), track.number(5)));
            }
            events.extend(packet.all(11).map(|event| Event::read(packet.number(8), event.bytes())));
        }
        Self { tracks, events }
    }

    pub(crate) fn processes(&self) -> Vec<&str> {
        self.tracks.values().filter(|(_, parent)| *parent == 0).map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn children(&self, process: &str) -> Vec<&str> {
        let parent = self.tracks.iter().find(|(_, (name, _))| name == process).unwrap().0;
        self.tracks.values().filter(|(_, it)| it == parent).map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    /// All slices; panics where beginnings and ends do not match.
    pub(crate) fn slices(&self) -> Vec<Slice> {
        let mut open: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        let mut slices = Vec::new();
        for event in &self.events {
            let stack = open.entry(event.track).or_default();
            match event.kind {
                Kind::Begin => stack.push(event),
                Kind::End => {
                    let begin = stack.pop().unwrap();
                    let Event { category, name, notes, .. } = begin.clone();
                    let track = self.tracks[&event.track].0.clone();
                    slices.push(Slice { track, category, name, notes, from: begin.at, to: event.at });
                }
                Kind::Instant | Kind::Counter => {}
            }
        }
        assert!(open.values().all(Vec::is_empty), "a slice has no end");
        slices
    }
}

impl Event {
    fn read(at: u64, event: &[u8]) -> Self {
        let event = Fields::of(event);
        let kind = match event.number(9) {
            1 => Kind::Begin,
            2 => Kind::End,
            3 => Kind::Instant,
            4 => Kind::Counter,
            other => panic!("a type that is not known: {other}"),
        };
        let notes = event.all(4).map(|note| Fields::of(note.bytes())).map(|note| (note.text(10), note.text(6)));
        let flows = |field| event.all(field).map(Value::number).collect();
        Self {
            at,
            kind,
            category: event.text(22),
            name: event.text(23),
            notes: notes.collect(),
            begins: flows(47),
            ends: flows(48),
            track: event.number(11),
        }
    }
}

/// The fields of a message.
struct Fields<'a>(Vec<(u64, Value<'a>)>);

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn of(mut message: &'a [u8]) -> Self {
        let mut fields = Vec::new();
        while !message.is_empty() {
            let key = varint(&mut message);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut message)),
                1 => Value::Number(u64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
                2 => {
                    let length = usize::try_from(varint(&mut message)).unwrap();
                    Value::Bytes(take(&mut message, length))
                }
                other => panic!("a wire type that is not written: {other}"),
            };
            fields.push((key >> 3, value));
        }
        Self(fields)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = Value<'a>> {
        self.0.iter().filter(move |(it, _)| *it == field).map(|(_, value)| *value)
    }

    fn number(&self, field: u64) -> u64 {
        self.all(field).next().map_or(0, Value::number)
    }

    fn text(&self, field: u64) -> String {
        self.all(field).next().map(|it| String::from_utf8(it.bytes().to_vec()).unwrap()).unwrap_or_default()
    }
}

impl<'a> Value<'a> {
    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => panic!("a number was expected"),
        }
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => panic!("bytes were expected"),
        }
    }
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}
