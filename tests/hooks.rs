//! Promise: a profiler is told of each phase and each execution, and only of those that ended well; spans of
//! `tracing` surround partitioning, compilation, execution, and plans and runs of sessions, and say what a
//! cache had.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sterna::{
    DataType, Engine, ExecutionProfile, Graph, LogicalTensor, Op, OpId, OpKind, PhaseKind, PhaseProfile,
    Policy, Profiler, TensorBuf,
};

/// Held by each test: of a span that a thread without a subscriber meets first while another thread has the
/// only one, `tracing` may note that nobody wants it.
static ONE_AFTER_THE_OTHER: Mutex<()> = Mutex::new(());

/// Lines on what it was told, and the durations.
#[derive(Default)]
struct Log {
    phases: Mutex<Vec<PhaseLine>>,
    executions: Mutex<Vec<ExecutionLine>>,
}

/// The ops, the bytes and the duration.
type ExecutionLine = (Vec<(OpKind, OpId)>, usize, Duration);

#[derive(Debug, Clone, PartialEq)]
struct PhaseLine {
    index: usize,
    count: usize,
    kind: PhaseKind,
    tasks: usize,
    bytes: usize,
    flops: usize,
    began: Instant,
    duration: Duration,
}

impl Profiler for Log {
    fn phase(&self, phase: &PhaseProfile<'_>) {
        let &PhaseProfile { index, count, kind, tasks, bytes, flops, began, duration, .. } = phase;
        let line = PhaseLine { index, count, kind, tasks, bytes, flops, began, duration };
        self.phases.lock().unwrap().push(line);
    }

    fn execution(&self, execution: &ExecutionProfile<'_>) {
        let line = (execution.ops.to_vec(), execution.bytes, execution.duration);
        self.executions.lock().unwrap().push(line);
    }
}

#[test]
fn a_profiler_is_told_what_ran() {
    let _alone = ONE_AFTER_THE_OTHER.lock().unwrap_or_else(|failed| failed.into_inner());
    let matrix = |id| LogicalTensor::strided(id, DataType::F32, &[64, 64]).unwrap();
    let mut graph = Graph::new();
    let product = Op::new(5, OpKind::MatMul).input(matrix(0)).input(matrix(1)).output(matrix(2));
    graph.add_op(product).unwrap();
    graph.finalize().unwrap();
    let partition = graph.partitions(Policy::Fusion).unwrap().remove(0);

    let log = Arc::new(Log::default());
    let engine = Engine::builder().threads(1).profiler(log.clone()).build();
    let compiled = partition.compile(&engine).unwrap();
    let inputs = [0, 1].map(|id| compiled.tensor_buf(id).unwrap());
    let mut output: TensorBuf = compiled.tensor_buf(2).unwrap();
    let given: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    compiled.run(&given[..1], &mut [output.as_tensor_mut()]).unwrap_err();
    assert!(log.executions.lock().unwrap().is_empty(), "what fails is not told");

    for _ in 0..2 {
        compiled.run(&given, &mut [output.as_tensor_mut()]).unwrap();
    }
    let (phases, executions) = (log.phases.lock().unwrap(), log.executions.lock().unwrap());
    let plan = compiled.plan();
    assert_eq!(phases.len(), 2 * plan.nests.len());
    for (line, (index, nest)) in phases.iter().zip(plan.nests.iter().enumerate().cycle()) {
        let told = (line.index, line.count, line.kind, line.tasks, line.flops);
        assert_eq!(told, (index, plan.nests.len(), nest.kind, nest.tasks, nest.flops));
    }
    assert_eq!(phases.last().unwrap().kind, PhaseKind::Gemm);
    assert!(phases.last().unwrap().bytes >= 2 * 64 * 64 * 4, "{phases:?}");
    assert!(phases.windows(2).all(|pair| pair[0].began + pair[0].duration <= pair[1].began), "{phases:?}");
    assert_eq!(executions.len(), 2);
    let of_phases: Duration = phases.iter().map(|line| line.duration).sum();
    let of_executions: Duration = executions.iter().map(|(.., duration)| *duration).sum();
    assert!(of_phases <= of_executions, "{of_phases:?} of {of_executions:?}");
    for (ops, bytes, _) in &*executions {
        assert_eq!((&ops[..], *bytes), (&[(OpKind::MatMul, OpId::new(5))][..], compiled.bytes_moved()));
    }
}

#[cfg(feature = "tracing")]
mod spans {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    use sterna::{Model, Session, TensorView};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Notes the names of spans when they begin and end, what is recorded of them, and events.
    #[derive(Default)]
    struct Names {
        next: AtomicU64,
        open: Mutex<Vec<(u64, &'static str)>>,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl Names {
        fn note(&self, sign: char, id: &Id) {
            let open = self.open.lock().unwrap();
            let (_, name) = open.iter().find(|(known, _)| *known == id.into_u64()).unwrap();
            self.lines.lock().unwrap().push(format!("{sign}{name}"));
        }
    }

    /// Notes fields.
    struct Fields<'a>(&'a Mutex<Vec<String>>);

    impl Visit for Fields<'_> {
        fn record_str(&mut self, field: &Field, value: &str) {
            self.record_debug(field, &format_args!("{value}"));
        }

        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}: {value:?}"));
        }
    }

    impl Subscriber for Names {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "sterna"
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let id = 1 + self.next.fetch_add(1, Ordering::Relaxed);
            self.open.lock().unwrap().push((id, span.metadata().name()));
            Id::from_u64(id)
        }

        fn record(&self, _: &Id, values: &Record<'_>) {
            values.record(&mut Fields(&self.lines));
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut Fields(&self.lines));
        }

        fn enter(&self, id: &Id) {
            self.note('+', id);
        }

        fn exit(&self, id: &Id) {
            self.note('-', id);
        }
    }

    /// The lines about what a closure does.
    fn lines_of(act: impl FnOnce()) -> Vec<String> {
        let _alone = ONE_AFTER_THE_OTHER.lock().unwrap_or_else(|failed| failed.into_inner());
        let names = Names::default();
        let lines = names.lines.clone();
        tracing::subscriber::with_default(names, act);
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    fn tensor(id: usize) -> LogicalTensor {
        LogicalTensor::strided(id, DataType::F32, &[4]).unwrap()
    }

    fn graph_of(op: Op) -> Graph {
        let mut graph = Graph::new();
        graph.add_op(op).unwrap();
        graph.finalize().unwrap();
        graph
    }

    #[test]
    fn surround_the_three_steps() {
        let graph = graph_of(Op::new(0, OpKind::Abs).input(tensor(0)).output(tensor(1)));
        let engine = Engine::builder().cache_capacity(8).build();
        let lines = lines_of(|| {
            for partition in graph.partitions(Policy::Fusion).unwrap() {
                partition.compile(&engine).unwrap();
                let compiled = partition.compile(&engine).unwrap();
                let mut result = [0.0f32; 4];
                let input = compiled.tensor("src", &[-1.0f32; 4]).unwrap();
                compiled.run(&[input], &mut [compiled.tensor_mut("dst", &mut result).unwrap()]).unwrap();
            }
        });
        let steps = [
            ["+partition", "-partition"].as_slice(),
            &["+compile", "cache: miss", "-compile"],
            &["+compile", "cache: hit", "-compile"],
            &["+execute", "-execute"],
        ];
        assert_eq!(lines, steps.concat());
    }

    #[test]
    fn sessions_plan_once_and_tell_what_the_interpreter_runs() {
        // Axes that are an input have no kernel.
        let axes = LogicalTensor::strided(1, DataType::S32, &[1]).unwrap();
        let sum = LogicalTensor::strided(2, DataType::F32, &[]).unwrap();
        let sum = Op::new(0, OpKind::ReduceSum).input(tensor(0)).input(axes).output(sum);
        let model = Model::new(graph_of(sum)).unwrap();
        let lines = lines_of(|| {
            let session = Session::builder(model).fallback(true).build(&Engine::new()).unwrap();
            let x = TensorView::new(&[1.0f32; 4], &[4]);
            for _ in 0..2 {
                session.run(&[("0", &x), ("1", &[0i32])]).unwrap();
            }
        });
        let told = |line: &&String| ["+plan", "+run"].contains(&line.as_str()) || line.contains("no kernel");
        let expected = [
            "+plan",
            "message: no kernel runs ReduceSum (op 0): the reference interpreter does",
            "+run",
            "+run",
        ];
        assert_eq!(lines.iter().filter(told).collect::<Vec<_>>(), expected);
    }
}
