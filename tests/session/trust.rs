//! Runs that fail: memory that is not to be had, ops of the caller's that break off. The state is as it was,
//! and the next run works. States on many threads at once.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

use crate::common::report;
use sterna::{
    Allocator, CustomNode, CustomOp, DataType, Dims, DynView, DynViewMut, Engine, Error, GraphBuilder,
    LogicalTensor, Result, Session, SessionFault, SessionState, SpanKind, StateLink, SystemAllocator,
    TensorView,
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

/// Works on an engine of some threads whose allocator fails once, at each of its calls by turns, which are
/// more than some: what is given is always the same, and no memory is left.
fn check_at_each_fault(
    (threads, least): (usize, usize),
    expected: &Vec<Vec<f32>>,
    work: impl Fn(&Engine) -> Result<Vec<Vec<f32>>, Error>,
) {
    let run = |fails: usize| {
        let allocator = Arc::new(Failing {
            calls: AtomicUsize::new(0),
            fails: AtomicUsize::new(fails),
            blocks: AtomicIsize::new(0),
        });
        let engine = Engine::builder().threads(threads).allocator(allocator.clone()).build();
        let given = work(&engine);
        drop(engine);
        let (calls, blocks) = (&allocator.calls, &allocator.blocks);
        (given, calls.load(Ordering::Relaxed), blocks.load(Ordering::Relaxed))
    };
    let (_, calls, _) = run(usize::MAX);
    assert!(calls > least, "{calls}");
    let mut faults = Vec::new();
    for fails in 0..calls {
        let (given, _, blocks) = run(fails);
        if given.as_ref() != Ok(expected) || blocks != 0 {
            faults.push(format!("call {fails}: {given:?}, {blocks} blocks left"));
        }
    }
    report(&faults);
}

#[test]
fn memory_that_is_not_to_be_had_leaves_the_state_as_it_was() {
    let expected = results(&caches().unwrap(), false).unwrap().0;
    check_at_each_fault((1, 10), &expected, |engine| {
        loop {
            match caches_on(engine).and_then(|session| Ok(results(&session, true)?.0)) {
                Err(Error::OutOfMemory { .. }) => {}
                other => break other,
            }
        }
    });
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

/// Gives its input, and writes an element so many elements from the first, too.
struct Strays(Arc<AtomicIsize>);

impl CustomOp for Strays {
    fn output_dims(
        &self,
        _: &CustomNode,
        inputs: &[LogicalTensor],
        _: &[LogicalTensor],
    ) -> Result<Vec<Dims>, String> {
        Ok(vec![inputs[0].dims().ok_or("the input is open")?.into(); 2])
    }

    fn run(
        &self,
        _: &CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String> {
        let x = inputs[0].elements::<f32>().map_err(|error| error.to_string())?;
        for output in outputs.iter_mut() {
            output.elements_mut::<f32>().map_err(|error| error.to_string())?.copy_from_slice(x);
        }
        let stray = outputs[1].as_mut_ptr().cast::<f32>().wrapping_offset(self.0.load(Ordering::Relaxed));
        // SAFETY: on either side of an output between ops there are 64 bytes that nobody else uses.
        unsafe { stray.write_unaligned(x[0]) };
        Ok(())
    }
}

#[test]
fn an_op_that_writes_beside_its_outputs_leaves_the_state_as_it_was() -> Result<()> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[Some(1), Some(3)])?;
    let described = (DataType::F32, None);
    let outputs = g.custom("test::Strays", &[g.softmax(x, 0)?], &[described, described])?;
    let rows = g.concat(&[g.input("past", DataType::F32, &[None, Some(3)])?, g.add(x, outputs[0])?], 0)?;
    g.output("present", rows)?;
    let total = g.input("past.total", DataType::F32, &[Some(1), Some(3)])?;
    g.output("present.total", g.add(total, outputs[1])?)?;
    g.output("y", g.matmul(outputs[1], g.constant("w", &[3, 3], &[1.0f32; 9])?)?)?;
    let place = Arc::new(AtomicIsize::new(0));
    let builder = Session::builder(g.build()?).op("test::Strays", Strays(place.clone()));
    let session = builder
        .state(StateLink::new("past", "present"))
        .state(StateLink::new("past.total", "present.total"))
        .build(&Engine::builder().threads(1).build())?;
    let mut state = session.new_state(&[])?;
    let mut run = |stray: isize| {
        place.store(stray, Ordering::Relaxed);
        let ran = session.run_with_state(&mut state, &[("x", &[[2.0f32, 2.0, 2.0]])]);
        let total = state.get("past.total")?.elements::<f32>()?.to_vec();
        let y = ran.map(|outputs| outputs["y"].as_slice::<f32>().map(<[f32]>::to_vec));
        Ok::<_, Error>((y, state.len(), total))
    };
    assert_eq!(run(0)?, (Ok(Ok(vec![3.0; 3])), 1, vec![1.0; 3]));
    let mut faults = Vec::new();
    for stray in [-16, -1, 3, 4, 18] {
        let (ran, rows, total) = run(stray)?;
        let text = "session: test::Strays `Wildcard_1`: it wrote beside the memory of output 1";
        let is_told = ran.as_ref().is_err_and(|error| error.to_string() == text);
        if !is_told || rows != 1 || total != [1.0; 3] {
            faults.push(format!("{stray}: {ran:?}, {rows} rows, {total:?}"));
        }
    }
    report(&faults);
    assert_eq!(run(2)?, (Ok(Ok(vec![3.0; 3])), 2, vec![2.0; 3]));
    Ok(())
}

/// Results of a `Concat` on its own, between partitions and as an output, whose operands are written where
/// it has them.
fn joined(engine: &Engine) -> Result<Session> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(64)])?;
    let w = g.constant("w", &[64, 64], &[0.5f32; 4096])?;
    let inner = g.concat(&[g.matmul(x, w)?, g.cumsum(x, 1)?], 0)?;
    g.output("y", g.concat(&[g.cumsum(inner, 0)?, g.softmax(inner, 0)?, inner], 1)?)?;
    Session::new(g.build()?, engine)
}

/// The results of runs on some lengths, each of which is tried until it succeeds.
fn tried(session: &Session) -> Result<Vec<Vec<f32>>> {
    let mut results = Vec::new();
    for rows in [3i64, 1, 3, 200] {
        let x: Vec<f32> = (0..64 * rows).map(|i| ((i * 7 + rows) % 11) as f32 - 5.0).collect();
        let x = TensorView::new(&x, &[rows, 64]);
        results.push(loop {
            match session.run(&[("x", &x)]) {
                Err(Error::OutOfMemory { .. }) => {}
                other => break other?["y"].as_slice::<f32>()?.to_vec(),
            }
        });
        // As far as memory of the caller's.
        let mut y = vec![7.0f32; results.last().map_or(0, Vec::len)];
        loop {
            match session.run_into(&[("x", &x)], &mut [("y", &mut y)]) {
                Err(Error::OutOfMemory { .. }) => {}
                other => break other?,
            }
        }
        assert_eq!(results.last(), Some(&y), "{rows}");
    }
    Ok(results)
}

#[test]
fn operands_that_a_concat_has_in_its_result_outlast_memory_that_is_not_to_be_had() {
    let session = joined(&Engine::builder().threads(2).build()).unwrap();
    let expected = tried(&session).unwrap();
    let arena = session.arena_plan().unwrap();
    assert!(arena.steps.iter().filter(|step| step.kind == SpanKind::Copy).count() <= 1, "{arena:?}");
    check_at_each_fault((2, 4), &expected, |engine| {
        loop {
            match joined(engine) {
                Err(Error::OutOfMemory { .. }) => {}
                other => break other.and_then(|session| tried(&session)),
            }
        }
    });
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
