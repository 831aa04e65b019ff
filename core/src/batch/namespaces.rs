//! The collections of a bulkWrite. A batch has only those that its items name, each once, numbered in the order of their first items
//! (BW-5).

use alloc::vec::Vec;

use bson::RawDocument;

/// The items of `nsInfo`, and which of them the batch in hand has.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// The different ones, encoded.
    all: Vec<Vec<u8>>,
    /// Their places in `all`, by their bytes.
    sorted: Vec<usize>,
    /// The place in `all` of each that was given.
    given: Vec<usize>,
    /// The number of each in the batch.
    numbers: Vec<Option<i32>>,
    /// Those of the batch, encoded.
    bytes: Vec<u8>,
    /// How many they are.
    count: i32,
}

impl Namespaces {
    /// Adds the next one.
    pub(super) fn add(&mut self, namespace: &RawDocument) {
        let bytes = namespace.as_bytes();
        let found = self.sorted.binary_search_by(|place| self.all.get(*place).map(Vec::as_slice).cmp(&Some(bytes)));
        let place = match found {
            Ok(at) => self.sorted.get(at).copied().unwrap_or_default(),
            Err(at) => {
                self.sorted.insert(at, self.all.len());
                self.all.push(bytes.to_vec());
                self.numbers.push(None);
                self.all.len() - 1
            }
        };
        self.given.push(place);
    }

    /// How many were given.
    pub(super) fn count(&self) -> usize {
        self.given.len()
    }

    /// The next batch begins, and has none.
    pub(super) fn begin(&mut self) {
        self.numbers.fill(None);
        self.bytes.clear();
        self.count = 0;
    }

    /// By how much an item for the collection that was given at this place lengthens the batch, beyond itself.
    pub(super) fn cost(&self, given: usize) -> usize {
        let Some(place) = self.given.get(given) else { return 0 };
        match self.numbers.get(*place) {
            Some(None) => self.all.get(*place).map_or(0, Vec::len),
            Some(Some(_)) | None => 0,
        }
    }

    /// The number in the batch of the collection that was given at this place.
    pub(super) fn number(&mut self, given: usize) -> i32 {
        let Some(place) = self.given.get(given) else { return 0 };
        let (Some(number), Some(namespace)) = (self.numbers.get_mut(*place), self.all.get(*place)) else { return 0 };
        *number.get_or_insert_with(|| {
            self.bytes.extend_from_slice(namespace);
            self.count += 1;
            self.count - 1
        })
    }

    /// Those of the batch, encoded.
    pub(super) fn of_batch(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_collection_that_is_given_twice_is_one_bw_5() {
        let mut namespaces = Namespaces::default();
        for name in ["db.a", "db.b", "db.a"] {
            namespaces.add(&rawdoc! { "ns": name });
        }
        namespaces.begin();

        assert_eq!([2, 1, 0].map(|given| namespaces.number(given)), [0, 1, 0]);
        let expected = [rawdoc! { "ns": "db.a" }, rawdoc! { "ns": "db.b" }].map(|it| it.as_bytes().to_vec()).concat();
        assert_eq!(namespaces.of_batch(), expected);
    }

    #[test]
    fn a_collection_costs_its_bytes_with_its_first_item_bw_5() {
        let mut namespaces = Namespaces::default();
        namespaces.add(&rawdoc! { "ns": "db.a" });
        namespaces.begin();

        let first = namespaces.cost(0);
        namespaces.number(0);

        assert_eq!((first, namespaces.cost(0)), (rawdoc! { "ns": "db.a" }.as_bytes().len(), 0));
    }
}
