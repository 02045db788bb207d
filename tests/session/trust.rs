//! Runs that fail: memory that is not to be had, ops of the caller's that break off. The state is as it was,
//! and the next run works. States on many threads at once.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

use crate::common::report;
use sterna::{
    Allocator, CustomNode, CustomOp, DataType, Dims, DynView, DynViewMut, Engine, Error, GraphBuilder,
    LogicalTensor, Result, Session, SessionFault, SessionState, SystemAllocator, TensorView,
};

/// An allocator one of whose calls fails.
struct Failing {
    calls: AtomicUsize,
    fails: AtomicUsize,
    blocks: AtomicIsize,
}

// SAFETY: the blocks are those of the system's allocator.
unsafe impl Allocator for Failing {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.fails.load(Ordering::Relaxed) {
            return None;
        }
        self.blocks.fetch_add(1, Ordering::Relaxed);
        SystemAllocator.allocate(size, align)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as the caller promises; the block came from there.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}

/// Two caches, one that grows where it lies and one that is written anew, a total of all rows, and a Concat
/// whose operands are written where its result has them.
fn caches() -> Result<Session> {
    caches_on(&Engine::builder().threads(1).build())
}

fn caches_on(engine: &Engine) -> Result<Session> {
    let g = GraphBuilder::new();
    let rows: &[Option<i64>] = &[Some(2), None, Some(3)];
    let (past, x) = (g.input("past.a", DataType::F32, rows)?, g.input("x", DataType::F32, rows)?);
    let all = g.concat(&[past, g.relu(x)?], 1)?;
    g.output("present.a", all)?;
    let front = g.concat(&[x, g.input("past.b", DataType::F32, rows)?], 1)?;
    g.output("present.b", front)?;
    let total = g.input("past.total", DataType::F32, &[Some(2), Some(3)])?;
    let sum = g.add(total, g.reduce_sum(x, &[1])?)?;
    g.output("present.total", sum)?;
    let w = g.constant("w", &[3, 3], &[1.0f32, 2.0, 0.0, 0.0, 1.0, 0.0, 3.0, 0.0, 1.0])?;
    let mixed = g.matmul(g.reduce_sum(all, &[1])?, w)?;
    let joined = g.concat(&[g.matmul(x, w)?, g.cumsum(x, 1)?], 1)?;
    let mixed = g.add(mixed, g.reduce_sum(g.cumsum(joined, 1)?, &[1])?)?;
    g.output("y", g.add(mixed, g.add(sum, g.reduce_sum(front, &[1])?)?)?)?;
    Session::builder(g.build()?).find_states().build(engine)
}

/// The results of some runs, each of which may be tried again.
fn results(session: &Session, retry: bool) -> Result<(Vec<Vec<f32>>, SessionState)> {
    let mut state = loop {
        match session.new_state(&[]) {
            Err(Error::OutOfMemory { .. }) if retry => {}
            other => break other?,
        }
    };
    let mut results = Vec::new();
    // The fourth run has more rows than there is room for at first.
    for rows in [2usize, 1, 0, 70, 3] {
        let x: Vec<f32> = (0..6 * rows).map(|i| ((i * 7 + rows) % 11) as f32 - 5.0).collect();
        let x = TensorView::new(&x, &[2, rows as i64, 3]);
        let before = state.len();
        let outputs = loop {
            match session.run_with_state(&mut state, &[("x", &x)]) {
                Err(Error::OutOfMemory { .. }) if retry => assert_eq!(state.len(), before),
                other => break other?,
            }
        };
        results.push(outputs["y"].as_slice::<f32>()?.to_vec());
    }
    Ok((results, state))
}

#[test]
fn memory_that_is_not_to_be_had_leaves_the_state_as_it_was() {
    let expected = results(&caches().unwrap(), false).unwrap().0;
    let run = |fails: usize| {
        let allocator = Arc::new(Failing {
            calls: AtomicUsize::new(0),
            fails: AtomicUsize::new(fails),
            blocks: AtomicIsize::new(0),
        });
        let engine = Engine::builder().threads(1).allocator(allocator.clone()).build();
        let given = loop {
            match caches_on(&engine).and_then(|session| Ok(results(&session, true)?.0)) {
                Err(Error::OutOfMemory { .. }) => {}
                other => break other,
            }
        };
        drop(engine);
        let (calls, blocks) = (&allocator.calls, &allocator.blocks);
        (given, calls.load(Ordering::Relaxed), blocks.load(Ordering::Relaxed))
    };
    let (_, calls, _) = run(usize::MAX);
    assert!(calls > 10, "{calls}");
    let mut faults = Vec::new();
    for fails in 0..calls {
        let (given, _, blocks) = run(fails);
        if given.as_ref() != Ok(&expected) || blocks != 0 {
            faults.push(format!("call {fails}: {given:?}, {blocks} blocks left"));
        }
    }
    report(&faults);
}

/// Gives its input, which is dense, unless it is to break off.
#[derive(Default)]
pub(crate) struct Breaks(Arc<AtomicBool>);

impl CustomOp for Breaks {
    fn output_dims(
        &self,
        _: &CustomNode,
        inputs: &[LogicalTensor],
        _: &[LogicalTensor],
    ) -> Result<Vec<Dims>, String> {
        Ok(vec![inputs[0].dims().ok_or("the input is open")?.into()])
    }

    fn run(
        &self,
        _: &CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String> {
        let fail = |error: Error| error.to_string();
        let x = inputs[0].elements::<f32>().map_err(fail)?;
        outputs[0].elements_mut::<f32>().map_err(fail)?.copy_from_slice(x);
        if self.0.load(Ordering::Relaxed) { Err("it broke off".into()) } else { Ok(()) }
    }
}

/// A cache of a fixed size, into which rows are written, and a cache that grows; behind both, or before, an
/// op that may break off.
fn breaking(breaks: &Arc<AtomicBool>, is_behind: bool) -> Result<Session> {
    let g = GraphBuilder::new();
    let past = g.input("past.fixed", DataType::F32, &[Some(4), Some(2)])?;
    let place = g.input("place", DataType::S64, &[Some(1), Some(1)])?;
    let x = g.input("x", DataType::F32, &[Some(1), Some(2)])?;
    let custom = |x| Ok::<_, Error>(g.custom("test::Breaks", &[x], &[(DataType::F32, None)])?[0]);
    let row = if is_behind { g.abs(x)? } else { custom(g.abs(x)?)? };
    let fixed = g.scatter_nd(past, place, row)?;
    g.output("present.fixed", fixed)?;
    let rows = g.input("past.rows", DataType::F32, &[None, Some(2)])?;
    let rows = g.concat(&[rows, row], 0)?;
    g.output("present.rows", rows)?;
    let sum = g.add(g.reduce_sum(fixed, &[0])?, g.reduce_sum(rows, &[0])?)?;
    g.output("y", if is_behind { custom(sum)? } else { sum })?;
    let builder = Session::builder(g.build()?).op("test::Breaks", Breaks(breaks.clone()));
    builder.find_states().build(&Engine::builder().threads(1).build())
}

#[test]
fn an_op_that_breaks_off_leaves_the_state_as_it_was() -> Result<()> {
    for is_behind in [false, true] {
        let breaks = Arc::new(AtomicBool::new(false));
        let session = breaking(&breaks, is_behind)?;
        let mut state = session.new_state(&[])?;
        let run = |state: &mut SessionState, place: i64, x: [f32; 2]| {
            let outputs = session.run_with_state(state, &[("place", &[[place]]), ("x", &[x])])?;
            Ok::<_, Error>(outputs["y"].as_slice::<f32>()?.to_vec())
        };
        assert_eq!(run(&mut state, 1, [1.0, -2.0])?, [2.0, 4.0], "{is_behind}");
        breaks.store(true, Ordering::Relaxed);
        let memory = state.memory();
        for place in [1, 2] {
            let refused = run(&mut state, place, [100.0, 100.0]);
            assert!(matches!(refused, Err(Error::Session(SessionFault::Custom { .. }))), "{refused:?}");
            assert_eq!((state.len(), state.memory()), (1, memory));
        }
        breaks.store(false, Ordering::Relaxed);
        // An index that names nothing is refused as well.
        assert!(run(&mut state, 4, [100.0, 100.0]).is_err());
        assert_eq!(state.get("past.fixed")?.elements::<f32>()?, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(run(&mut state, 1, [3.0, 3.0])?, [7.0, 8.0]);
        state.reset();
        assert_eq!(run(&mut state, 0, [1.0, 1.0])?, [2.0, 2.0]);
        // Elements are written in their place, unless a step behind may break off.
        let fixed = 4 * 2 * 4;
        assert_eq!(memory, fixed * if is_behind { 2 } else { 1 } + 64 * 2 * 4);
    }
    Ok(())
}

#[test]
fn threads_have_a_state_each() -> Result<()> {
    let session = caches_on(&Engine::builder().threads(2).build())?;
    let expected = results(&session, false)?.0;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let (given, state) = results(&session, false).unwrap();
                    assert_eq!((given, state.len()), (expected.clone(), 76));
                }
            });
        }
    });
    Ok(())
}

#[test]
fn graphs_of_open_lengths_say_their_outputs_before_they_run() -> Result<()> {
    let session = caches()?;
    let mut state = session.new_state(&[])?;
    let descs = session.output_descs_with_state(&mut state, &[("x", &[2, 5, 3])])?;
    assert_eq!((descs.len(), descs[0].dims(), state.len()), (1, Some(&[2, 3][..]), 0));
    let wrong = session.output_descs_with_state(&mut state, &[("x", &[2, 5, 4])]).unwrap_err();
    assert_eq!(wrong.to_string(), "session: input `x` is given as {2,5,4}, the model has {2,?,3}");
    let rows: &[i64] = &[2, 1, 3];
    let all = session.output_descs(&[
        ("past.a", &[2, 7, 3]),
        ("x", rows),
        ("past.b", rows),
        ("past.total", &[2, 3]),
    ])?;
    let dims: Vec<_> = all.iter().map(|desc| desc.dims().unwrap_or_default().to_vec()).collect();
    assert_eq!(dims, [vec![2, 8, 3], vec![2, 2, 3], vec![2, 3], vec![2, 3]]);
    Ok(())
}
