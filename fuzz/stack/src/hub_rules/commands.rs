//! Commands out of an input: ordinary ones, with pipelines in each other, and something odd in places.

use cmap_core::wire::{Compression, Compressor, Limits};

use super::{BETWEEN_SERVERS, COLLECTIONS, DATABASES};

type Bytes = Vec<u8>;

/// A document sequence, by its identifier.
type Sequence = (&'static str, Vec<Bytes>);

/// The bytes of an input; zeros after its end, which choose the plainest of everything.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub(super) fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

/// Makes commands.
pub(super) struct Commands<'i, 'a> {
    pub(super) input: &'i mut Input<'a>,
    /// The cursor that was opened last.
    pub(super) cursor: i64,
}

/// How deep pipelines are nested in each other.
const DEPTH: usize = 4;

/// Keys that mean something to rules or servers somewhere.
#[rustfmt::skip]
const KEYS: [&str; 18] = [
    "$lookup", "$unionWith", "$out", "$merge", "$facet", "from", "coll", "db", "into", "pipeline", "ns", "nsInfo", "viewOn", "to", "out",
    "$db", "ops", "root",
];

/// Commands on a collection, whose other fields are of no matter.
const PLAIN: [&str; 7] =
    ["drop", "listIndexes", "validate", "collStats", "listCollections", "convertToCapped", "deleteIndexes"];

/// Names of collections that are not there, or that servers keep for themselves.
const ODD_COLLECTIONS: [&[u8]; 9] = [
    b"new",
    b"\xff",
    b"SECRET",
    b"secret\0x",
    b"",
    b"a.secret",
    b"system.views",
    b"system.buckets.secret",
    b"system.buckets.system.js",
];

/// How many kinds of commands there are. Of those, `explain` has another one in it.
const KINDS: usize = 28;
const EXPLAIN: usize = 27;

impl Commands<'_, '_> {
    pub(super) fn message(mut self, number: i32) -> Bytes {
        let kind = self.input.below(KINDS);
        let (mut fields, sequence) = self.command(kind);
        let database = if fields.first().is_some_and(|first| first.name == b"renameCollection") {
            "admin"
        } else {
            self.input.pick(&DATABASES)
        };
        fields.push(Field::text("$db", database));
        if self.input.byte() >= 240 {
            fields.push(Field::document(self.input.pick(&BETWEEN_SERVERS), document(&[])));
        }
        let body = self.disturbed(fields);
        let how = self.input.byte();
        let mut sections = vec![(None, vec![body])];
        if let Some((name, documents)) = sequence {
            sections.push((Some(name), documents));
            if how % 2 == 1 {
                sections.reverse();
            }
        }
        let mut message = op_msg(number, &sections);
        if how >= 192
            && let Ok(mut compressor) = Compressor::new(Compression::Snappy)
        {
            _ = compressor.compress_reply(&mut message, 0, &Limits::DEFAULT);
        }
        message
    }

    /// The fields of a command, and a document sequence of it.
    fn command(&mut self, kind: usize) -> (Vec<Field>, Option<Sequence>) {
        let fields = match kind {
            0..=6 => self.aggregate(),
            7 => vec![self.named("find"), Field::int("batchSize", 1), self.anything("filter")],
            8 => vec![self.named("count"), self.anything("query")],
            9 => vec![self.named("distinct"), Field::text("key", "_id"), self.anything("query")],
            10 => return self.write("insert", "documents"),
            11 => return self.write("update", "updates"),
            12 => return self.write("delete", "deletes"),
            13 => self.view("create"),
            14 => self.view("collMod"),
            15 => vec![Field::text("renameCollection", self.namespace()), Field::text("to", self.namespace())],
            EXPLAIN => {
                let kind = self.input.below(EXPLAIN);
                let (inner, _) = self.command(kind);
                vec![Field::document("explain", self.disturbed(inner)), Field::text("verbosity", "queryPlanner")]
            }
            16 => {
                let id = Field::new(0x12, "getMore", self.cursor.to_le_bytes());
                vec![id, Field::text("collection", self.collection())]
            }
            17 => {
                let name = self.input.pick(&["mapReduce", "mapreduce"]);
                vec![self.named(name), self.out()]
            }
            18 => return self.bulk_write(),
            19 => vec![self.named("cloneCollectionAsCapped"), Field::text("toCollection", self.collection())],
            20 => vec![Field::text("dataSize", self.namespace())],
            21 => {
                let id = Field::new(0x12, "0", self.cursor.to_le_bytes());
                vec![self.named("killCursors"), Field::new(ARRAY, "cursors", document(&[id]))]
            }
            22 => vec![Field::int("dropDatabase", 1)],
            23 => {
                let name = self.input.pick(&["findAndModify", "findandmodify"]);
                let set = document(&[Field::document("$set", document(&[Field::int("x", 1)]))]);
                vec![self.named(name), self.anything("query"), Field::document("update", set)]
            }
            24 => {
                let key = Field::document("key", document(&[Field::int("x", 1)]));
                let index = document(&[key, Field::text("name", "x")]);
                vec![self.named("createIndexes"), Field::array("indexes", &[index])]
            }
            25 => self.unknown(),
            _ => {
                let name = self.input.pick(&PLAIN);
                vec![self.named(name), self.anything("filter")]
            }
        };
        (fields, None)
    }

    /// A command that the hub does not know: it names its collection anywhere.
    fn unknown(&mut self) -> Vec<Field> {
        match self.input.below(3) {
            0 => {
                let namespace = self.named("ns");
                vec![Field::document("group", self.disturbed(vec![namespace]))]
            }
            1 => vec![Field::int("copydb", 1), Field::text("fromdb", self.input.pick(&DATABASES))],
            _ => vec![Field::int("filemd5", 1), self.named("root")],
        }
    }

    fn view(&mut self, name: &str) -> Vec<Field> {
        let pipeline = self.pipeline(0);
        vec![self.named(name), Field::text("viewOn", self.collection()), Field::array("pipeline", &pipeline)]
    }

    /// A batch of one write, in the command or in a document sequence, whose name may be wrong.
    fn write(&mut self, name: &str, list: &'static str) -> (Vec<Field>, Option<Sequence>) {
        let item = match name {
            "insert" => vec![self.anything("x")],
            "update" => vec![self.anything("q"), self.anything("u")],
            _ => vec![self.anything("q"), Field::int("limit", 1)],
        };
        let item = self.disturbed(item);
        let named = self.named(name);
        match self.input.below(4) {
            0 => (vec![named, Field::array(list, &[item])], None),
            1 => (vec![named], Some((self.input.pick(&KEYS), vec![item]))),
            _ => (vec![named], Some((list, vec![item]))),
        }
    }

    fn aggregate(&mut self) -> Vec<Field> {
        let first = if self.input.byte() % 8 == 7 { Field::int("aggregate", 1) } else { self.named("aggregate") };
        let pipeline = self.pipeline(0);
        vec![first, Field::array("pipeline", &pipeline), Field::document("cursor", document(&[]))]
    }

    fn bulk_write(&mut self) -> (Vec<Field>, Option<Sequence>) {
        let mut namespace = || {
            let namespace = self.namespace();
            self.disturbed(vec![Field::text("ns", namespace)])
        };
        let (first, second) = (namespace(), namespace());
        let fields = vec![Field::int("bulkWrite", 1), Field::array("nsInfo", std::slice::from_ref(&first))];
        let writes = [("insert", "document"), ("update", "filter"), ("delete", "filter")];
        let writes = writes.map(|(kind, with)| {
            let position = i32::from(self.input.byte() % 3);
            document(&[Field::int(kind, position), Field::document(with, document(&[]))])
        });
        match self.input.below(5) {
            0 => (fields, None),
            1 => (fields[..1].to_vec(), Some(("nsInfo", vec![first, second]))),
            2 => (fields, Some(("nsInfo", vec![second]))),
            3 => (fields, Some(("ops", writes.into()))),
            _ => ([fields, vec![Field::array("ops", &writes)]].concat(), None),
        }
    }

    /// A field that names a collection, mostly by a string.
    fn named(&mut self, name: &str) -> Field {
        Field::text(name, self.collection())
    }

    fn collection(&mut self) -> Bytes {
        match self.input.byte() {
            byte @ 0..208 => COLLECTIONS[usize::from(byte) % COLLECTIONS.len()].into(),
            byte => ODD_COLLECTIONS[usize::from(byte) % ODD_COLLECTIONS.len()].into(),
        }
    }

    fn other_database(&mut self) -> &'static str {
        self.input.pick(&["shop", "other", "crm", "shop.a", "crm\0x", "local", "config"])
    }

    fn namespace(&mut self) -> Bytes {
        let database = self.input.pick(&DATABASES);
        [database.as_bytes(), b".", &self.collection()].concat()
    }

    /// A collection by its name, or by a document that names its database, too.
    fn place(&mut self, name: &str) -> Field {
        match self.input.below(3) {
            0 => self.named(name),
            _ => {
                let database = Field::text("db", self.other_database());
                let fields = vec![database, self.named("coll")];
                Field::document(name, self.disturbed(fields))
            }
        }
    }

    fn out(&mut self) -> Field {
        let how = ["replace", "merge", "reduce", ""][self.input.below(4)];
        if how.is_empty() {
            return self.named("out");
        }
        let fields = vec![self.named(how), Field::text("db", self.other_database())];
        Field::document("out", self.disturbed(fields))
    }

    fn pipeline(&mut self, depth: usize) -> Vec<Bytes> {
        let count = if depth < DEPTH { 1 + self.input.below(3) } else { 0 };
        (0..count).map(|_| self.stage(depth)).collect()
    }

    fn stage(&mut self, depth: usize) -> Bytes {
        let inner = |this: &mut Self| Field::array("pipeline", &this.pipeline(depth + 1));
        let stage = match self.input.below(12) {
            0 => Field::document("$match", document(&[])),
            1 | 2 => {
                let fields = vec![self.place("from"), Field::text("as", "x"), inner(self)];
                Field::document("$lookup", self.disturbed(fields))
            }
            3 => {
                let fields = vec![self.place("from"), Field::text("as", "x"), Field::text("connectFromField", "x")];
                Field::document("$graphLookup", self.disturbed(fields))
            }
            4 => self.named("$unionWith"),
            5 | 6 => {
                let mut fields = vec![self.named("coll"), inner(self)];
                if self.input.byte() % 2 == 1 {
                    fields.push(Field::text("db", self.other_database()));
                }
                Field::document("$unionWith", self.disturbed(fields))
            }
            7 => self.place("$out"),
            8 => self.named("$merge"),
            9 => {
                let fields = vec![self.place("into"), Field::text("whenMatched", "replace")];
                Field::document("$merge", self.disturbed(fields))
            }
            10 => {
                let fields = ["a", "b"].map(|name| Field::array(name, &self.pipeline(depth + 1)));
                Field::document("$facet", self.disturbed(fields.into()))
            }
            _ => Field::document("$changeStream", document(&[])),
        };
        self.disturbed(vec![stage])
    }

    /// A field with a document of keys that mean something elsewhere.
    fn anything(&mut self, name: &str) -> Field {
        let count = self.input.below(3);
        let fields = (0..count).map(|_| match self.input.pick(&KEYS) {
            key @ "pipeline" => Field::array(key, &self.pipeline(DEPTH - 1)),
            key => self.named(key),
        });
        let fields = fields.collect();
        Field::document(name, self.disturbed(fields))
    }

    /// A document of these fields, mostly as they are; else with something that could be misunderstood.
    fn disturbed(&mut self, mut fields: Vec<Field>) -> Bytes {
        let byte = self.input.byte();
        if byte < 176 {
            return document(&fields);
        }
        let at = self.input.below(fields.len() + 1);
        match byte % 8 {
            0 | 1 => fields.insert(at, Field::text("x", b"\xff")),
            2 => fields.insert(at, self.odd()),
            3 => fields.insert(at, Field { tag: STRING, name: b"\xff".into(), value: string(b"x") }),
            4 => {
                if let Some(twice) = fields.get(at).cloned() {
                    let at = self.input.below(fields.len() + 1);
                    let other = Field { value: string(&self.collection()), tag: STRING, ..twice.clone() };
                    fields.insert(at, if self.input.byte().is_multiple_of(2) { other } else { twice });
                }
            }
            5 => {
                if let Some(field) = fields.get_mut(at) {
                    field.name.make_ascii_uppercase();
                }
            }
            6 => {
                // Code or a symbol, which is a string to some readers.
                if let Some(field) = fields.get_mut(at).filter(|field| field.tag == STRING) {
                    field.tag = [0x0d, 0x0e][self.input.below(2)];
                }
            }
            _ => {
                let key = self.input.pick(&KEYS);
                let named = self.named(key);
                fields.insert(at, named);
            }
        }
        document(&fields)
    }

    /// A text that is not UTF-8 where one could overlook it.
    fn odd(&mut self) -> Field {
        const WRONG: &[u8] = b"\x02\0\0\0\xff\0";
        let nested = document(&[Field::new(STRING, "y", WRONG)]);
        match self.input.below(8) {
            0 => Field::new(0x0d, "x", WRONG),
            1 => Field::new(0x0e, "x", WRONG),
            2 => Field::new(0x0c, "x", [WRONG, &[0; 12]].concat()),
            3 => Field::new(0x0b, "x", &b"\xff\0\0"[..]),
            4 => Field::new(0x0f, "x", [&length(4 + 5 + nested.len()), &b"\x01\0\0\0\0"[..], &nested].concat()),
            5 => Field::new(0x0f, "x", [&length(4 + WRONG.len() + 5), WRONG, &document(&[])].concat()),
            6 => Field::new(ARRAY, "x", nested),
            _ => Field::document("x", nested),
        }
    }
}

/// A field of a document, whose bytes need not be what they should.
#[derive(Clone)]
struct Field {
    tag: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;

impl Field {
    fn new(tag: u8, name: &str, value: impl Into<Bytes>) -> Self {
        Self { tag, name: name.into(), value: value.into() }
    }

    fn text(name: &str, text: impl AsRef<[u8]>) -> Self {
        Self::new(STRING, name, string(text.as_ref()))
    }

    fn int(name: &str, value: i32) -> Self {
        Self::new(0x10, name, value.to_le_bytes())
    }

    fn document(name: &str, document: Bytes) -> Self {
        Self::new(DOCUMENT, name, document)
    }

    fn array(name: &str, documents: &[Bytes]) -> Self {
        let items = documents.iter().enumerate();
        let items: Vec<_> = items.map(|(at, item)| Self::document(&at.to_string(), item.clone())).collect();
        Self::new(ARRAY, name, document(&items))
    }
}

fn string(text: &[u8]) -> Bytes {
    [&length(text.len() + 1), text, &[0]].concat()
}

fn document(fields: &[Field]) -> Bytes {
    let mut content = Vec::new();
    for Field { tag, name, value } in fields {
        content.extend([&[*tag][..], name, &[0], value].concat());
    }
    [&length(4 + content.len() + 1), &content[..], &[0]].concat()
}

/// An OP_MSG of these sections, each with its identifier unless it is the body.
pub(super) fn op_msg(number: i32, sections: &[(Option<&str>, Vec<Bytes>)]) -> Bytes {
    const NO_FLAGS: [u8; 4] = [0; 4];
    let mut content = NO_FLAGS.to_vec();
    for (identifier, documents) in sections {
        let documents = documents.concat();
        match identifier {
            None => content.extend([&[0][..], &documents].concat()),
            Some(name) => {
                content.push(1);
                content.extend(length(4 + name.len() + 1 + documents.len()));
                content.extend([name.as_bytes(), &[0], &documents].concat());
            }
        }
    }
    let header = [length(16 + content.len()), number.to_le_bytes(), [0; 4], 2013_i32.to_le_bytes()];
    [header.concat(), content].concat()
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_le_bytes()
}
