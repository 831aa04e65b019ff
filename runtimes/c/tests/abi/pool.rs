//! A pool through the functions of the header, for tests in Rust.

use core::ffi::c_char;
use core::{ptr, slice};

use cmap::*;

/// A pool that is freed at the end.
pub(crate) struct AbiPool(pub(crate) *mut Pool);

/// A result that is not [`CMAP_OK`].
pub(crate) type Code = i32;

/// An output with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: u32,
    pub(crate) reason: u32,
    pub(crate) flags: u32,
    pub(crate) service: [u8; 12],
    pub(crate) connection: Connection,
    pub(crate) check_out: CheckOut,
    pub(crate) number: u64,
    pub(crate) socket: u64,
    pub(crate) nanos: u64,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) const NOTHING: Self = Self {
        kind: CMAP_NOTHING,
        reason: 0,
        flags: 0,
        service: [0; 12],
        connection: Connection { opaque: [0; 3] },
        check_out: CheckOut { opaque: [0; 3] },
        number: 0,
        socket: 0,
        nanos: 0,
        text: String::new(),
    };

    pub(crate) fn of(output: &Output) -> Self {
        assert_eq!((output.size, output.server), (size(), 0));
        Self {
            kind: output.kind,
            reason: output.reason,
            flags: output.flags,
            service: output.service,
            connection: output.connection,
            check_out: output.check_out,
            number: output.number,
            socket: output.socket,
            nanos: output.nanos,
            text: lent(output.text, output.text_length),
        }
    }
}

/// The size of the struct, as C says it.
pub(crate) fn size() -> u32 {
    u32::try_from(size_of::<Output>()).unwrap()
}

/// A struct as a C program has it before a call.
pub(crate) fn blank() -> Output {
    Output {
        size: size(),
        kind: u32::MAX,
        reason: u32::MAX,
        server: u32::MAX,
        flags: u32::MAX,
        service: [0xff; 12],
        connection: Connection { opaque: [u64::MAX; 3] },
        check_out: CheckOut { opaque: [u64::MAX; 3] },
        number: u64::MAX,
        socket: u64::MAX,
        nanos: u64::MAX,
        text: ptr::null(),
        text_length: usize::MAX,
    }
}

/// A text that the library has lent.
pub(crate) fn lent(text: *const c_char, length: usize) -> String {
    assert!(!text.is_null());
    // SAFETY: the header promises so many bytes and a zero until the next call.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length + 1) };
    assert_eq!(bytes.last(), Some(&0));
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

fn done(code: Code) -> Result<(), Code> {
    if code == CMAP_OK { Ok(()) } else { Err(code) }
}

/// A call that is made by the function of this name.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the pool is not freed yet, and the other pointers are to local variables and texts.
        done(unsafe { $name($($argument),*) })
    };
}

impl AbiPool {
    /// A pool at `db.example:27017`.
    pub(crate) fn new(options: &str, now: u64) -> Result<Self, (Code, String)> {
        Self::at("db.example:27017", options, now)
    }

    pub(crate) fn at(address: &str, options: &str, now: u64) -> Result<Self, (Code, String)> {
        let (mut pool, mut problem) = (ptr::null_mut(), [c_char::MAX; 256]);
        let made = call!(cmap_pool_new(
            address.as_ptr().cast(),
            address.len(),
            options.as_ptr().cast(),
            options.len(),
            now,
            &raw mut pool,
            problem.as_mut_ptr(),
            problem.len()
        ));
        let text = problem.iter().map_while(|&byte| (byte != 0).then_some(byte as u8));
        made.map(|()| Self(pool)).map_err(|code| (code, String::from_utf8(text.collect()).unwrap()))
    }

    /// Asks for a connection, which may be delivered at once.
    pub(crate) fn check_out(&self, now: u64, deadline: Option<u64>, key: Option<u64>) -> (CheckOut, Seen) {
        let (mut check_out, mut delivery) = (CheckOut::default(), blank());
        let key = key.as_ref().map_or(ptr::null(), ptr::from_ref);
        let deadline = deadline.unwrap_or(CMAP_NEVER);
        call!(cmap_pool_check_out(self.0, now, deadline, key, &raw mut check_out, &raw mut delivery)).unwrap();
        (check_out, Seen::of(&delivery))
    }

    pub(crate) fn cancel(&self, now: u64, check_out: CheckOut) -> Result<u32, Code> {
        let mut found = 0;
        call!(cmap_pool_cancel_check_out(self.0, now, &raw const check_out, &raw mut found)).map(|()| found)
    }

    pub(crate) fn check_in(
        &self,
        now: u64,
        check_out: CheckOut,
        connection: Connection,
        socket: u64,
        condition: u32,
    ) -> Result<Seen, Code> {
        // As a C program may do it: the struct that told of the delivery is the one that tells of the next.
        let mut both = Output { check_out, connection, ..blank() };
        let (check_out, connection) = (&raw const both.check_out, &raw const both.connection);
        call!(cmap_pool_check_in(self.0, now, check_out, connection, socket, condition, &raw mut both))
            .map(|()| Seen::of(&both))
    }

    pub(crate) fn set_purpose(&self, check_out: CheckOut, connection: Connection, purpose: u32) -> Result<(), Code> {
        call!(cmap_pool_set_purpose(self.0, &raw const check_out, &raw const connection, purpose))
    }

    pub(crate) fn ready(&self, now: u64) -> Result<(), Code> {
        call!(cmap_pool_ready(self.0, now))
    }

    pub(crate) fn clear(&self, now: u64, service: Option<[u8; 12]>, interrupts: bool, cause: &str) -> Result<(), Code> {
        let service = service.as_ref().map_or(ptr::null(), |service| service.as_ptr());
        call!(cmap_pool_clear(self.0, now, service, interrupts.into(), cause.as_ptr().cast(), cause.len()))
    }

    pub(crate) fn close(&self, now: u64) -> Result<(), Code> {
        call!(cmap_pool_close(self.0, now))
    }

    pub(crate) fn reset_after_fork(&self, now: u64) -> Result<(), Code> {
        call!(cmap_pool_reset_after_fork(self.0, now))
    }

    pub(crate) fn hello(&self, now: u64, connection: Connection, service: [u8; 12]) -> Result<(), Code> {
        call!(cmap_pool_hello(self.0, now, &raw const connection, service.as_ptr()))
    }

    pub(crate) fn established(&self, now: u64, connection: Connection, socket: u64) -> Result<(), Code> {
        call!(cmap_pool_established(self.0, now, &raw const connection, socket))
    }

    /// `failure` is the phase, the fault, the server's code and the reaction.
    pub(crate) fn establish_failed(
        &self,
        now: u64,
        connection: Connection,
        failure: (u32, u32, i32, u32),
        text: &str,
    ) -> Result<(), Code> {
        let (phase, fault, code, reaction) = failure;
        call!(cmap_pool_establish_failed(
            self.0,
            now,
            &raw const connection,
            phase,
            fault,
            code,
            reaction,
            text.as_ptr().cast(),
            text.len()
        ))
    }

    pub(crate) fn checked(&self, now: u64, connection: Connection, is_alive: bool) -> Result<(), Code> {
        call!(cmap_pool_checked(self.0, now, &raw const connection, is_alive.into()))
    }

    pub(crate) fn refreshed(&self, now: u64, connection: Connection, socket: u64) -> Result<(), Code> {
        call!(cmap_pool_refreshed(self.0, now, &raw const connection, socket))
    }

    /// `failure` is the fault, the server's code and the reaction.
    pub(crate) fn refresh_failed(
        &self,
        now: u64,
        connection: Connection,
        failure: (u32, i32, u32),
        text: &str,
    ) -> Result<(), Code> {
        let (fault, code, reaction) = failure;
        call!(cmap_pool_refresh_failed(
            self.0,
            now,
            &raw const connection,
            fault,
            code,
            reaction,
            text.as_ptr().cast(),
            text.len()
        ))
    }

    pub(crate) fn peer_closed(&self, now: u64, connection: Connection) -> Result<(), Code> {
        call!(cmap_pool_peer_closed(self.0, now, &raw const connection))
    }

    pub(crate) fn resize(&self, now: u64, limits: &str) -> Result<(), Code> {
        call!(cmap_pool_resize(self.0, now, limits.as_ptr().cast(), limits.len()))
    }

    pub(crate) fn replace_connections(&self, now: u64, over: u64) -> Result<(), Code> {
        call!(cmap_pool_replace_connections(self.0, now, over))
    }

    pub(crate) fn end_affinity(&self, now: u64, key: u64) -> Result<(), Code> {
        call!(cmap_pool_end_affinity(self.0, now, key))
    }

    pub(crate) fn resume(&self, now: u64) -> Result<(), Code> {
        call!(cmap_pool_resume(self.0, now))
    }

    pub(crate) fn renew_credential(&self, now: u64) -> Result<(), Code> {
        call!(cmap_pool_renew_credential(self.0, now))
    }

    pub(crate) fn warm_up(&self, now: u64, connections: Option<u32>) -> u64 {
        let mut warm_up = 0;
        call!(cmap_pool_warm_up(self.0, now, connections.unwrap_or(u32::MAX), &raw mut warm_up)).unwrap();
        warm_up
    }

    pub(crate) fn cancel_warm_up(&self, now: u64, warm_up: u64) -> u32 {
        let mut found = 0;
        call!(cmap_pool_cancel_warm_up(self.0, now, warm_up, &raw mut found)).unwrap();
        found
    }

    pub(crate) fn handle_timeout(&self, now: u64) -> Result<(), Code> {
        call!(cmap_pool_handle_timeout(self.0, now))
    }

    pub(crate) fn observe(&self, on: bool) -> Result<(), Code> {
        call!(cmap_pool_observe(self.0, on.into()))
    }

    pub(crate) fn record_durations(&self, on: bool) -> Result<(), Code> {
        call!(cmap_pool_record_durations(self.0, on.into()))
    }

    /// The next output, or [`Seen::NOTHING`].
    pub(crate) fn poll(&self) -> Seen {
        let mut output = blank();
        call!(cmap_pool_poll_output(self.0, &raw mut output)).unwrap();
        Seen::of(&output)
    }

    /// The outputs that are left.
    pub(crate) fn drain(&self) -> Vec<Seen> {
        core::iter::from_fn(|| Some(self.poll()).filter(|output| *output != Seen::NOTHING)).collect()
    }

    /// When to come back, and why.
    pub(crate) fn poll_timeout(&self) -> (u64, u32) {
        let (mut at, mut reason) = (0, 0);
        call!(cmap_pool_poll_timeout(self.0, &raw mut at, &raw mut reason)).unwrap();
        (at, reason)
    }

    pub(crate) fn next_check_out_timeout(&self) -> u64 {
        let mut at = 0;
        call!(cmap_pool_next_check_out_timeout(self.0, &raw mut at)).unwrap();
        at
    }

    pub(crate) fn is_stale(&self, connection: Connection) -> bool {
        let mut is_stale = 0;
        call!(cmap_pool_is_stale(self.0, &raw const connection, &raw mut is_stale)).unwrap();
        is_stale == 1
    }

    pub(crate) fn problem(&self) -> String {
        let (mut text, mut length) = (ptr::null(), 0);
        call!(cmap_pool_problem(self.0, &raw mut text, &raw mut length)).unwrap();
        lent(text, length)
    }

    pub(crate) fn statistics(&self, now: u64) -> serde_json::Value {
        let (mut text, mut length) = (ptr::null(), 0);
        call!(cmap_pool_statistics(self.0, now, &raw mut text, &raw mut length)).unwrap();
        serde_json::from_str(&lent(text, length)).unwrap()
    }

    pub(crate) fn holders(&self) -> serde_json::Value {
        let (mut text, mut length) = (ptr::null(), 0);
        call!(cmap_pool_holders(self.0, &raw mut text, &raw mut length)).unwrap();
        serde_json::from_str(&lent(text, length)).unwrap()
    }

    pub(crate) fn snapshot(&self) -> serde_json::Value {
        let (mut text, mut length) = (ptr::null(), 0);
        call!(cmap_pool_snapshot(self.0, &raw mut text, &raw mut length)).unwrap();
        serde_json::from_str(&lent(text, length)).unwrap()
    }

    pub(crate) fn start_recording(&self) {
        call!(cmap_pool_start_recording(self.0, 0)).unwrap();
    }

    pub(crate) fn stop_recording(&self) {
        call!(cmap_pool_stop_recording(self.0)).unwrap();
    }

    pub(crate) fn note_holder(&self, check_out: CheckOut, holder: &str) {
        call!(cmap_pool_note_holder(self.0, &raw const check_out, holder.as_ptr().cast(), holder.len())).unwrap();
    }

    pub(crate) fn recording(&self, trigger: &str) -> Result<Vec<u8>, Code> {
        let (mut bytes, mut length) = (ptr::null(), 0);
        let trigger = (trigger.as_ptr().cast(), trigger.len());
        call!(cmap_pool_recording(self.0, 0, trigger.0, trigger.1, &raw mut bytes, &raw mut length))?;
        // SAFETY: the header promises so many bytes until the next call.
        Ok(unsafe { slice::from_raw_parts(bytes, length) }.to_vec())
    }
}

impl Drop for AbiPool {
    fn drop(&mut self) {
        // SAFETY: it was made by `cmap_pool_new`, and is not used any more.
        unsafe { cmap_pool_free(self.0) };
    }
}
