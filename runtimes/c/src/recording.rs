//! Recordings: the calls of a pool as a file that `cmap replay` repeats and explains.

use core::ffi::c_char;

use cmap_core::topology::CheckOut as Started;
use cmap_core::trace::{Header, RecorderOptions};

use crate::code::{CMAP_ERROR_NOT_RECORDING, Failure};
use crate::ids::CheckOut;
use crate::memory::{Out, read, text};
use crate::pool::{Pool, call};

/// Most bytes that a recording may take. They are reserved by quarters, and a program that has too few is aborted.
const MOST_BYTES: u64 = 1 << 30;

/// Most texts of holders that are kept; further ones are not noted.
const MOST_HOLDERS: usize = 4096;

/// Records the calls of the pool from now on, the latest in as many bytes, or in a mebibyte with 0; forgets what was recorded before.
/// More than a gibibyte is refused: CMAP_ERROR_RANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_start_recording(pool: *mut Pool, bytes: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe {
        call(pool, |state| {
            let mut options = RecorderOptions::default();
            if bytes > MOST_BYTES {
                return Err(Failure::range("bytes", bytes));
            }
            if bytes > 0 {
                options.bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
            state.holders.clear();
            state.machine.start_recording(options);
            Ok(())
        })
    }
}

/// Records no more, and forgets what was recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_stop_recording(pool: *mut Pool) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe {
        call(pool, |state| {
            state.machine.stop_recording();
            state.holders.clear();
            // The file may be what is lent, and large.
            state.lend(Vec::new());
            Ok(())
        })
    }
}

/// Records who has made a check-out, for the explanation of waits: a function, a place in the source, an endpoint. Call it right after
/// cmap_pool_check_out. Does nothing if nothing is recorded. At most 4,096 different texts are kept; further ones are not noted: take
/// few.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_note_holder(
    pool: *mut Pool,
    check_out: *const CheckOut,
    holder: *const c_char,
    holder_length: usize,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let check_out = read(check_out, "check_out")?.id()?;
            let holder = text(holder, holder_length, "holder")?;
            if !state.machine.is_recording() {
                return Ok(());
            }
            let next = u32::try_from(state.holders.len()).unwrap_or(u32::MAX);
            let number = match state.holders.get(holder) {
                Some(&known) => known,
                None if state.holders.len() >= MOST_HOLDERS => return Ok(()),
                None => *state.holders.entry(holder.to_owned()).or_insert(next),
            };
            state.machine.note_holder(Started::Started(check_out), number);
            Ok(())
        })
    }
}

/// What is recorded, as a file. `unix_millis` is the time of day now, in milliseconds since 1970, or 0 if it is not known; `trigger` says
/// why the file is written. The bytes are lent until the next call of the pool. The file has the address of the server and the texts of
/// errors and holders in it, and nothing of what goes over the connections.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_recording(
    pool: *mut Pool,
    unix_millis: u64,
    trigger: *const c_char,
    trigger_length: usize,
    bytes: *mut *const u8,
    length: *mut usize,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let trigger = text(trigger, trigger_length, "trigger")?;
            let (bytes, length) = (Out::at(bytes, "bytes")?, Out::at(length, "length")?);
            let nothing =
                || Failure::new(CMAP_ERROR_NOT_RECORDING, "nothing is recorded: call cmap_pool_start_recording");
            let contents = state.machine.recording().ok_or_else(nothing)?;
            let holders = state.holders.iter().map(|(holder, number)| (*number, holder.clone()));
            let mut header = Header::default();
            header.producer = format!("cmap-c {}", env!("CARGO_PKG_VERSION"));
            header.trigger = trigger.to_owned();
            header.written_at = state.machine.now();
            header.unix_millis = (unix_millis > 0).then_some(unix_millis);
            let file = contents.with_texts(holders).encode(&header);
            let (pointer, number) = state.lend(file);
            bytes.set(pointer.cast());
            length.set(number);
            Ok(())
        })
    }
}
