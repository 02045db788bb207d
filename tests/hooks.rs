//! Promise: a profiler is told of each phase and each execution, and only of those that ended well; spans of
//! `tracing` surround partitioning, compilation and execution.

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

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Notes the names of spans when they begin and end.
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

    impl Subscriber for Names {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "sterna"
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let id = 1 + self.next.fetch_add(1, Ordering::Relaxed);
            self.open.lock().unwrap().push((id, span.metadata().name()));
            Id::from_u64(id)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {}

        fn enter(&self, id: &Id) {
            self.note('+', id);
        }

        fn exit(&self, id: &Id) {
            self.note('-', id);
        }
    }

    #[test]
    fn surround_the_three_steps() {
        let _alone = ONE_AFTER_THE_OTHER.lock().unwrap_or_else(|failed| failed.into_inner());
        let names = Names::default();
        let lines = names.lines.clone();
        tracing::subscriber::with_default(names, || {
            let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[4]).unwrap();
            let mut graph = Graph::new();
            graph.add_op(Op::new(0, OpKind::Abs).input(tensor(0)).output(tensor(1))).unwrap();
            graph.finalize().unwrap();
            let compiled = graph.partitions(Policy::Fusion).unwrap()[0].compile(&Engine::new()).unwrap();
            let mut result = [0.0f32; 4];
            let input = compiled.tensor("src", &[-1.0f32; 4]).unwrap();
            compiled.run(&[input], &mut [compiled.tensor_mut("dst", &mut result).unwrap()]).unwrap();
        });
        let steps = ["+partition", "-partition", "+compile", "-compile", "+execute", "-execute"];
        assert_eq!(*lines.lock().unwrap(), steps);
    }
}
