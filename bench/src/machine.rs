//! What this runs on.

/// What it ran on, as far as the system says.
pub fn machine() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo").lines().find_map(|line| {
        line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        format!("{cores} cores, {}", cpu.unwrap_or_else(|| "processor unknown".to_owned())),
        format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        format!("load before: {}", read("/proc/loadavg").trim()),
    ]
}
