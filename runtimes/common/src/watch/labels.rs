//! Texts that come again and again, each with a small number: labels of check-outs, names of commands.
//!
//! A table takes so many texts and no more, since labels that never end (one for each user, say) would take all memory. Those
//! beyond share one number, and are counted. Texts are added and never removed, so a known one is found without a lock.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A text that says what connections are for, made once by [`Client::label`](crate::Connections::label) and given to many check-outs:
/// then the text is not searched for at each of them. It belongs to its client; to others it means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    id: LabelId,
    client: u32,
}

/// The number of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LabelId(u16);

/// The texts.
#[derive(Debug)]
pub(crate) struct Labels {
    /// By their numbers, from 1.
    texts: Box<[OnceLock<Arc<str>>]>,
    /// By hash, with the next place free: the number of a text, or 0. A number comes here after its text.
    places: Box<[AtomicU16]>,
    /// How many there are. Locked while one is added.
    known: Mutex<usize>,
    /// Whether there is room for no more.
    is_full: AtomicBool,
    /// The text of those beyond.
    others: Arc<str>,
    folded: AtomicU64,
}

/// Most texts of a table.
pub(crate) const MOST: usize = 128;

/// Lines of a table by label: one for none, one for each text, and one for all beyond.
pub(crate) const LINES: usize = MOST + 2;

/// Most bytes of a text; the rest is cut off.
const LONGEST: usize = 64;

/// Twice as many places as texts, so that a search is short. A power of two.
const PLACES: usize = 2 * MOST;

impl LabelId {
    /// No text.
    pub(crate) const NONE: Self = Self(0);

    /// One of those beyond.
    const OTHERS: Self = Self::at(LINES - 1);

    /// The place of its line in a table of [`LINES`].
    #[inline]
    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    /// That of such a line.
    #[expect(clippy::cast_possible_truncation, reason = "there are a few hundred lines")]
    pub(super) const fn at(place: usize) -> Self {
        Self(place as u16)
    }
}

impl Label {
    pub(crate) fn new(id: LabelId, client: u32) -> Self {
        Self { id, client }
    }

    /// Its number at the client that has this number.
    #[inline]
    pub(crate) fn id_at(self, client: u32) -> LabelId {
        if self.client == client { self.id } else { LabelId::NONE }
    }
}

impl Labels {
    /// A table, and what to call the texts beyond.
    pub(crate) fn new(others: &str) -> Self {
        Self {
            texts: (0..MOST).map(|_| OnceLock::new()).collect(),
            places: (0..PLACES).map(|_| AtomicU16::new(LabelId::NONE.0)).collect(),
            known: Mutex::default(),
            is_full: AtomicBool::new(false),
            others: others.into(),
            folded: AtomicU64::new(0),
        }
    }

    /// The number of a text. A known text is found without a lock or an allocation.
    #[inline]
    pub(crate) fn id(&self, text: &str) -> LabelId {
        let text = cut(text);
        self.search(text).unwrap_or_else(|_| self.add(text))
    }

    /// The number of a text that is known, or the place where it would be.
    #[inline]
    fn search(&self, text: &str) -> Result<LabelId, usize> {
        if text.is_empty() {
            return Ok(LabelId::NONE);
        }
        let mut place = hash(text) % PLACES;
        loop {
            match self.places.get(place).map(|id| LabelId(id.load(Ordering::Acquire))) {
                Some(LabelId::NONE) | None => return Err(place),
                Some(id) if self.get(id).is_some_and(|own| **own == *text) => return Ok(id),
                Some(_) => place = (place + 1) % PLACES,
            }
        }
    }

    /// Those that are known have no control characters, so only a text that is not known has to be looked at.
    #[cold]
    fn add(&self, text: &str) -> LabelId {
        if text.chars().any(char::is_control) {
            // It could forge a line of a log.
            let shown: String = text.chars().map(|own| if own.is_control() { '?' } else { own }).collect();
            return self.id(cut(&shown));
        }
        if self.is_full.load(Ordering::Acquire) {
            // The last text may have been added meanwhile.
            return self.search(text).unwrap_or_else(|_| self.fold());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have added it meanwhile.
        let place = match self.search(text) {
            Ok(id) => return id,
            Err(place) => place,
        };
        let (Some(free), Some(place)) = (self.texts.get(*known), self.places.get(place)) else {
            return self.fold();
        };
        free.get_or_init(|| Arc::from(text));
        *known += 1;
        let id = LabelId::at(*known);
        place.store(id.0, Ordering::Release);
        self.is_full.store(*known == MOST, Ordering::Release);
        id
    }

    fn fold(&self) -> LabelId {
        self.folded.fetch_add(1, Ordering::Relaxed);
        LabelId::OTHERS
    }

    /// The text of a number.
    pub(crate) fn get(&self, id: LabelId) -> Option<&Arc<str>> {
        match id {
            LabelId::NONE => None,
            LabelId::OTHERS => Some(&self.others),
            LabelId(number) => self.texts.get(usize::from(number) - 1)?.get(),
        }
    }

    /// How often a text was given that the table had no room for.
    pub(crate) fn folded(&self) -> u64 {
        self.folded.load(Ordering::Relaxed)
    }
}

/// The beginning of a text, in whole characters.
fn cut(text: &str) -> &str {
    if text.len() <= LONGEST {
        return text;
    }
    let end = (0..=LONGEST).rev().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Eight bytes at a time, by a product each.
fn hash(text: &str) -> usize {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let word = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = words.iter().fold(text.len() as u64, |hash, own| word(hash, u64::from_le_bytes(*own)));
    let rest = rest.iter().fold(0, |rest, &byte| (rest << 8) | u64::from(byte));
    (word(hash, rest) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        Labels::new("other labels")
    }

    #[test]
    fn a_text_keeps_its_number() {
        let labels = labels();
        let checkout = labels.id("checkout page");

        assert_eq!(labels.id("checkout page"), checkout);
        assert_ne!(labels.id("report"), checkout);
        assert_eq!(labels.get(checkout).map(|text| &**text), Some("checkout page"));
    }

    #[test]
    fn threads_that_give_the_same_texts_get_the_same_numbers() {
        let labels = labels();
        let ids = || (0..MOST).map(|user| labels.id(&format!("user {user}"))).collect::<Vec<_>>();

        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(ids);
            (ids(), other.join().unwrap())
        });

        assert_eq!(one, other);
        assert_eq!((labels.folded(), one.iter().max()), (0, Some(&LabelId(128))));
    }

    #[test]
    fn a_label_of_another_client_is_none() {
        let label = Label::new(labels().id("checkout page"), 1);

        assert_eq!((label.id_at(1), label.id_at(2)), (LabelId(1), LabelId::NONE));
    }

    #[test]
    fn an_empty_text_is_none() {
        assert_eq!(labels().id(""), LabelId::NONE);
    }

    #[test]
    fn texts_beyond_the_last_place_are_folded_and_counted() {
        let labels = labels();
        let first: Vec<_> = (0..MOST).map(|user| labels.id(&format!("user {user}"))).collect();

        let beyond: Vec<_> = (0..1000).map(|user| labels.id(&format!("visitor {user}"))).collect();

        assert!(beyond.iter().all(|id| labels.get(*id).is_some_and(|text| **text == *"other labels")));
        assert_eq!(labels.folded(), 1000);
        assert_eq!((0..MOST).map(|user| labels.id(&format!("user {user}"))).collect::<Vec<_>>(), first);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let labels = labels();
        let id = labels.id(&format!("{}ä", "x".repeat(LONGEST - 1)));

        assert_eq!(labels.get(id).map(|text| text.len()), Some(LONGEST - 1));
    }

    #[test]
    fn a_text_cannot_forge_a_line_of_a_log() {
        let labels = labels();
        let id = labels.id("a\nb\u{1b}");

        assert_eq!(labels.get(id).map(|text| &**text), Some("a?b?"));
    }
}
