//! Promise: an execution through the C interface allocates nothing, as one through Rust does not.
//!
//! One test alone in its binary: a second one would allocate while this one counts.

#[path = "../../tests/common/counting.rs"]
mod counting;
#[path = "common/select.rs"]
mod select;

use counting::allocations;
use select::{CPU, SUCCESS, Select, made};
use sterna_capi::engine::sterna_engine_create;

#[test]
fn executions_allocate_nothing() {
    assert_ne!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 0, "the counter counts");

    // SAFETY: the engine is destroyed with the select.
    let engine = made(|engine| unsafe { sterna_engine_create(Some(engine), CPU, 0) });
    let select = Select::new(engine, 1);
    assert_eq!(select.execute(), SUCCESS);
    let ten = allocations(|| (0..10).for_each(|_| assert_eq!(select.execute(), SUCCESS)));
    assert_eq!(ten, 0, "calls of the allocator in ten executions");
    assert_eq!(select.finish(), [1.0, 2.0, 1.0, 2.0, 1.0]);
}
