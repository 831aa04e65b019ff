//! A number that goes up and down, and how high it was: ever, and since somebody looked last.

/// A number and its high-water marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    now: usize,
    most: usize,
    lately: usize,
}

impl Gauge {
    /// The present value.
    pub fn now(self) -> usize {
        self.now
    }

    /// The most that it ever was.
    pub fn most(self) -> usize {
        self.most
    }

    /// The most that it was since the last call.
    pub fn take_most_lately(&mut self) -> usize {
        std::mem::replace(&mut self.lately, self.now)
    }

    /// Raises it.
    pub fn raise(&mut self, by: usize) {
        self.now = self.now.saturating_add(by);
        self.most = self.most.max(self.now);
        self.lately = self.lately.max(self.now);
    }

    /// Lowers it, to zero at the lowest.
    pub fn lower(&mut self, by: usize) {
        self.now = self.now.saturating_sub(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_lately_is_that_since_the_last_look() {
        let mut gauge = Gauge::default();
        gauge.raise(5);
        gauge.lower(3);

        assert_eq!((gauge.now(), gauge.most(), gauge.take_most_lately()), (2, 5, 5));
        gauge.raise(1);
        assert_eq!((gauge.most(), gauge.take_most_lately(), gauge.take_most_lately()), (5, 3, 3));
    }
}
