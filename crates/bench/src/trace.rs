//! A recorded cluster: nodes and pods from CSV files in the form of Alibaba's openb trace.

use std::path::{Path, PathBuf};

use bayplan_explain::simulate::{Openb, OpenbError};

/// Nodes, pods, and the order in which pods are created and deleted.
pub use bayplan_explain::simulate::Openb as Trace;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The file is not a table of a trace.
    #[error("{}: {source}", path.display())]
    Table {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        source: OpenbError,
    },
}

/// Reads the list of nodes and the list of pods.
pub fn read(nodes: &Path, pods: &Path) -> Result<Trace, Error> {
    let text =
        |path: &Path| std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source });
    let table = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Table { path, source }
    };
    let trace = Openb::nodes_of(&text(nodes)?).map_err(table(nodes))?;
    trace.with_pods_of(&text(pods)?).map_err(table(pods))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_trace_is_replayed_and_a_table_without_its_columns_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = write(
            folder.path(),
            "nodes.csv",
            "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1024,0,\nn1,8000,1024,2,T4\n",
        );
        let pods = write(
            folder.path(),
            "pods.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
             scheduled_time\na,1000,64,2,1000,T4|A10,LS,Running,5,20,5\nb,1000,64,0,0,,LS,Pending,1,5,\n",
        );
        let trace = read(&nodes, &pods).unwrap();
        let options = crate::engine::Options { nodes: 0, pods: 0, seed: 1, confirmations: false, decision_log: false };
        let run = crate::engine::run_trace(&trace, &options, &mut |_, _, _| {}).unwrap();
        assert_eq!((run.nodes, run.pods), (2, 2));
        let error = read(&pods, &nodes).err().unwrap().to_string();
        assert!(error.ends_with("there is no column \"sn\""), "{error}");
    }
}
