//! How exact partitions are.

use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

use crate::string::{name, names};

/// How the bits of a partition relate to those of its ops, each run as a separate partition, and to the exact
/// result: one of the `STERNA_ACCURACY_*` numbers.
///
/// `exact`: the bits are those of the ops run one by one, and each element is computed on its own. `ordered`:
/// the bits are those of the ops run one by one; an op adds up many elements, in an order that depends on the
/// op, its types, its shapes and strides, and the CPU alone, and stays within a bound of the exact result.
/// `bounded`: the result stays within a bound of the exact one, but its bits may differ from those of the ops
/// run one by one.
///
/// With layout `any`, an op alone may settle another layout, and with it another order of additions. The bits
/// are those of the ops with the layouts that the partition settled: those of its compiled inputs and
/// outputs, and row-major ones for the tensors inside.
pub type Accuracy = c_int;

/// The name of an accuracy, such as `ordered`; null for a number that is none. The text is constant and must
/// not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_accuracy_string(accuracy: Accuracy) -> *const c_char {
    static NAMES: LazyLock<Vec<(Accuracy, CString)>> =
        LazyLock::new(|| names(sterna::Accuracy::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, accuracy)
}
