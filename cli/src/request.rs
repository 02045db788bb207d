//! The options of a run for tensors: values, fills, and files for results.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sterna::{LogicalTensor, Partition, TensorId};

use crate::args::RunArgs;
use crate::expect::Expected;
use crate::fill::Fill;
use crate::given::Given;
use crate::named::Named;
use crate::names::{NamedTensor, PortScope};
use crate::needed;
use crate::source::Loaded;
use crate::terminal::can_be_written;
use crate::words::plain;

/// The options for tensors, by id.
pub(crate) struct RunRequest {
    pub(crate) input: Vec<(TensorId, Given)>,
    pub(crate) output: Vec<OutputFile>,
    pub(crate) fill: Vec<(TensorId, Fill)>,
}

/// A file that takes one tensor, or an archive that takes several.
pub(crate) struct OutputFile {
    pub(crate) path: PathBuf,
    /// Each with its name in an archive.
    pub(crate) tensors: Vec<(TensorId, String)>,
}

impl OutputFile {
    /// The files that options name.
    fn all(request: &[Named<PathBuf>], loaded: &Loaded) -> Result<Vec<Self>> {
        let mut files: Vec<Self> = Vec::new();
        for named in request {
            let (key, path) = loaded.names.split(named);
            let tensors = match key {
                None => loaded.names.outputs.iter().map(|port| (port.id, port.name().to_owned())).collect(),
                Some(key) => vec![(loaded.names.find("--output", key, PortScope::Outputs)?, key.clone())],
            };
            match files.iter_mut().find(|file| file.path == *path) {
                None => files.push(Self { path: path.clone(), tensors }),
                Some(file) if is_archive(path) => file.tensors.extend(tensors),
                Some(_) => bail!("--output names {} more than once; keep one", path.display()),
            }
        }
        for file in files.iter_mut().filter(|file| is_archive(&file.path)) {
            // The name of a tensor that an option gives by its id.
            for (id, name) in &mut file.tensors {
                if *name == id.to_string() {
                    *name = loaded.names.key(*id);
                }
            }
            let mut names: Vec<&String> = file.tensors.iter().map(|(_, name)| name).collect();
            names.sort_unstable();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                bail!("--output puts `{}` into {} more than once", plain(pair[0]), file.path.display());
            }
        }
        Ok(files)
    }
}

pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

impl RunRequest {
    pub(crate) fn of(args: &RunArgs, loaded: &Loaded) -> Result<Self> {
        let input = loaded.given.clone();
        let output = OutputFile::all(&args.output, loaded)?;
        let fill = loaded.resolve("--fill", &args.fill, PortScope::Both)?;
        let filled: BTreeSet<TensorId> = fill.iter().map(|(id, _)| *id).collect();
        match input.iter().find(|(id, _)| filled.contains(id)) {
            Some((id, _)) => bail!("tensor {id} is given by --input and by --fill; keep one of the two"),
            None => Ok(Self { input, output, fill }),
        }
    }

    /// Passes over inputs of a model that no op uses, and says so.
    pub(crate) fn leave_unused(&mut self, loaded: &Loaded) -> Vec<String> {
        if !loaded.is_model {
            return Vec::new();
        }
        let used: BTreeSet<TensorId> = loaded.graph.inputs().iter().map(|input| input.id()).collect();
        let unused = || loaded.names.inputs.iter().filter(|port| !used.contains(&port.id));
        let named = self.input.iter().map(|(id, _)| *id).chain(self.fill.iter().map(|(id, _)| *id));
        let named: BTreeSet<TensorId> = named.collect();
        let notes = unused().filter(|port| named.contains(&port.id));
        let note = |port: &NamedTensor| match loaded.folded.contains_key(port.name()) {
            true => needed::note(port.name()),
            false => format!("no op uses the input {:?} of the model", port.name()),
        };
        let notes = notes.map(note).collect();
        let unused: BTreeSet<TensorId> = unused().map(|port| port.id).collect();
        self.input.retain(|(id, _)| !unused.contains(id));
        self.fill.retain(|(id, _)| !unused.contains(id));
        notes
    }

    /// True if an option gives the value of an input.
    pub(crate) fn is_given(&self, id: TensorId) -> bool {
        self.input.iter().any(|(given, _)| *given == id)
    }

    /// True if a fill replaces what is computed.
    pub(crate) fn fills_results(&self, loaded: &Loaded) -> bool {
        let inputs: BTreeSet<TensorId> = loaded.graph.inputs().iter().map(|input| input.id()).collect();
        self.fill.iter().any(|(id, _)| !inputs.contains(id))
    }

    /// Checks that the tensors are there.
    pub(crate) fn check(
        &self,
        loaded: &Loaded,
        partitions: &[Partition],
        expected: &[Expected],
    ) -> Result<()> {
        let names = &loaded.names;
        let ids =
            |tensors: &mut dyn Iterator<Item = &LogicalTensor>| tensors.map(LogicalTensor::id).collect();
        let inputs: BTreeSet<TensorId> = ids(&mut loaded.graph.inputs().into_iter());
        for (id, _) in &self.input {
            names.check("--input", *id, &inputs, "an input of the graph")?;
        }
        let computed: BTreeSet<TensorId> = ids(&mut partitions.iter().flat_map(Partition::outputs));
        for (id, _) in self.output.iter().flat_map(|file| &file.tensors) {
            names.check("--output", *id, &computed, "handed out by a partition")?;
        }
        for Expected { tensor, .. } in expected {
            names.check("--expect", *tensor, &computed, "handed out by a partition")?;
        }
        self.output.iter().try_for_each(|file| can_be_written(&file.path))?;
        let held = &inputs | &computed;
        for (id, _) in &self.fill {
            names.check("--fill", *id, &held, "an input of the graph or handed out by a partition")?;
        }
        Ok(())
    }
}
