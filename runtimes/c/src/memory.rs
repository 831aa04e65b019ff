//! The caller's memory: what is read from it and written to it.
//!
//! Everything is looked at before a call is made, through raw pointers: C may hand over one struct both to read from and to write
//! to. What is to be written is kept as an [`Out`], which is filled once the call was made.

use core::ffi::c_char;
use core::ptr::NonNull;
use core::{slice, str};

use cmap_core::pool::ServiceId;

use crate::code::{CMAP_ERROR_RANGE, CMAP_ERROR_SIZE, CMAP_ERROR_TEXT, Failure};
use crate::output::Output;

/// A place in the caller's memory that a call fills.
pub(crate) struct Out<T>(NonNull<T>);

impl<T: Copy> Out<T> {
    /// # Safety
    /// The pointer is NULL, or a `T` can be written there as long as this lives.
    pub(crate) unsafe fn at(pointer: *mut T, argument: &'static str) -> Result<Self, Failure> {
        NonNull::new(pointer).map(Self).ok_or_else(|| Failure::null(argument))
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: the caller of `at` promises that a `T` can be written there.
        unsafe { self.0.write(value) };
    }
}

/// A `struct cmap_output` of the caller's, which may be of an older or a newer header.
pub(crate) struct OutputSlot {
    place: NonNull<Output>,
    size: usize,
}

/// The size of the first version of the struct.
const FIRST_SIZE: usize = size_of::<Output>();

impl OutputSlot {
    /// # Safety
    /// The pointer is NULL, or to as many bytes as the number says that stands there first, as long as this lives.
    pub(crate) unsafe fn at(pointer: *mut Output, argument: &'static str) -> Result<Self, Failure> {
        let place = NonNull::new(pointer).ok_or_else(|| Failure::null(argument))?;
        // SAFETY: whatever its size is, the number stands there first.
        let size = unsafe { place.cast::<u32>().read() } as usize;
        if size < FIRST_SIZE {
            let text = format!("the size of {argument} is {size}, and has to be {FIRST_SIZE} at least");
            return Err(Failure::new(CMAP_ERROR_SIZE, text));
        }
        Ok(Self { place, size })
    }

    /// Fills it, but for its size and for what lies beyond that.
    pub(crate) fn set(self, output: Output) {
        let size = self.size.min(size_of::<Output>());
        let output = Output { size: u32::try_from(self.size).unwrap_or(u32::MAX), ..output };
        // SAFETY: the caller of `at` promises so many bytes; the source is a local variable, so that the two do not overlap.
        unsafe { (&raw const output).cast::<u8>().copy_to_nonoverlapping(self.place.cast::<u8>().as_ptr(), size) };
    }
}

/// A copy of what a pointer leads to.
///
/// # Safety
/// The pointer is NULL, or to a `T`.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T, argument: &'static str) -> Result<T, Failure> {
    // SAFETY: as the caller has promised; it is not NULL.
    if pointer.is_null() { Err(Failure::null(argument)) } else { Ok(unsafe { pointer.read() }) }
}

/// A text. One without bytes may be NULL.
///
/// # Safety
/// The pointer is NULL, or to so many bytes, which do not change for as long as the text is used.
pub(crate) unsafe fn text<'a>(
    pointer: *const c_char,
    length: usize,
    argument: &'static str,
) -> Result<&'a str, Failure> {
    if length == 0 {
        return Ok("");
    }
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::new(CMAP_ERROR_RANGE, format!("the length of {argument} is {length}")));
    }
    // SAFETY: as the caller has promised; it is neither NULL nor longer than memory can be.
    let bytes = unsafe { slice::from_raw_parts(pointer.cast::<u8>(), length) };
    str::from_utf8(bytes).map_err(|error| Failure::new(CMAP_ERROR_TEXT, format!("{argument} is not UTF-8: {error}")))
}

/// The id of a service: `None` if the pointer is NULL.
///
/// # Safety
/// The pointer is NULL, or to 12 bytes.
pub(crate) unsafe fn service(pointer: *const u8) -> Option<ServiceId> {
    // SAFETY: as the caller has promised.
    (!pointer.is_null()).then(|| ServiceId(unsafe { pointer.cast::<[u8; 12]>().read() }))
}
