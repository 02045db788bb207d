//! Format tags: names of the orders in which the dims of a tensor lie in memory.

use std::ffi::c_int;

use sterna_capi::ffi::Fault;

use crate::memory_desc::{Dims, MAX_NDIMS, RUNTIME};

/// A number of `dnnl_format_tag_t`.
pub(crate) type FormatTag = c_int;

pub(crate) const UNDEF: FormatTag = 0;
pub(crate) const ANY: FormatTag = 1;

/// The number behind the last tag.
const END: FormatTag = 875;

/// The plain tags by the number of the first: the dims from the outermost in memory to the innermost. The
/// tags between the two lists and behind the second lay blocks of elements side by side.
const PLAIN: [(FormatTag, &[&str]); 2] = [
    (
        2,
        &[
            "a",
            "ab",
            "abc",
            "abcd",
            "abcde",
            "abcdef",
            "abcdefg",
            "abcdefgh",
            "abcdefghi",
            "abcdefghij",
            "abcdefghijk",
            "abcdefghijkl",
            "ba",
            "acb",
            "bac",
            "bca",
            "cab",
            "cba",
            "abdc",
            "acbd",
            "acdb",
            "adbc",
            "adcb",
            "bacd",
            "bcda",
            "cdab",
            "cdba",
            "dcab",
            "abced",
            "abdec",
            "acbde",
            "acdeb",
            "adecb",
            "bacde",
            "bcdea",
            "cdeab",
            "cdeba",
            "decab",
            "abcdfe",
            "abdefc",
            "abdfce",
            "acbdef",
            "adefcb",
            "defcab",
            "abcdegf",
            "abcdefhg",
            "abcdefgih",
            "abcdefghji",
            "abcdefghikj",
            "abcdefghijlk",
        ],
    ),
    (835, &["bcad", "cabd", "dabc"]),
];

/// The strides, in elements, of a tensor that lies densely in the order of a tag.
pub(crate) fn strides(tag: FormatTag, dims: &[i64]) -> Result<Dims, Fault> {
    let row = PLAIN.iter().find_map(|(first, names)| {
        let index = usize::try_from(tag.checked_sub(*first)?).ok()?;
        names.get(index)
    });
    let order = match row {
        Some(name) => name.bytes().map(|dim| usize::from(dim - b'a')),
        None if (0..END).contains(&tag) => {
            return Err(Fault::unimplemented(format!(
                "format tag {tag} lays out blocks; only plain tags are implemented"
            )));
        }
        None => return Err(Fault::unknown("format tag", tag)),
    };
    if order.len() != dims.len() {
        let (given, needed) = (dims.len(), order.len());
        return Err(Fault::invalid_arguments(format!("format tag {tag} is of {needed} dims, not {given}")));
    }
    let mut strides = [0; MAX_NDIMS];
    let mut next = Some(1i64);
    for dim in order.rev() {
        strides[dim] = next.ok_or_else(|| Fault::invalid_arguments("the dims exceed the address space"))?;
        next = match dims[dim] {
            RUNTIME => Some(RUNTIME),
            _ if strides[dim] == RUNTIME => next,
            size => strides[dim].checked_mul(size.max(1)),
        };
    }
    Ok(strides)
}
