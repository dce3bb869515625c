package trace

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/sim"
)

// format is one kind of table.
type format struct {
	name string
	// A column that no other format has.
	mark string
	// Columns; a/b: one of them.
	needs []string
	read  func(*jobCollector, *columns) error
}

func traceFormats() []format {
	return []format{
		{"a Philly trace", "num_gpus", []string{"timestamp", "duration", "num_gpus"}, readPhilly},
		{"an openb list of pods", "gpu_milli", []string{"num_gpu", "gpu_milli", "creation_time", "deletion_time"}, readOpenb},
		{"the answer of sacct -P", "submit", []string{"submit", "elapsedraw/elapsed", "alloctres/reqtres"}, readSacct},
		{"a Philly trace", "timestamp", []string{"timestamp", "duration", "num_gpus"}, readPhilly}, // says which column is missing
		{"the answer of sacct -P", "jobid", []string{"submit", "elapsedraw/elapsed", "alloctres/reqtres"}, readSacct},
	}
}

// readPhilly: the reduction of msr-fiddle/philly-traces by the authors of Pollux (petuum/adaptdl, branch osdi21-artifact,
// simulator/traces/philly.csv). A column user or user_id is read if there is one.
func readPhilly(k *jobCollector, c *columns) error {
	at, err := parseMoment("timestamp", time.DateTime, c.columnValue("timestamp"))
	if err != nil {
		return err
	}

	lasts, err := parseSeconds("duration", c.columnValue("duration"))
	if err != nil {
		return err
	}

	gpus, err := parseWhole("num_gpus", c.columnValue("num_gpus"))
	if err != nil {
		return err
	}

	return k.addJob(sim.Job{Arrival: at, Lasts: lasts}, gpus, cmp.Or(c.columnValue("user"), c.columnValue("user_id")))
}

// readOpenb: hkust-adsl/kubernetes-scheduler-simulator, data/csv/openb_pod_list_*.csv. Times are seconds since the beginning
// of the record; gpu_milli is the part of a GPU's computing, taken here for the part of its memory.
func readOpenb(k *jobCollector, c *columns) error {
	gpus, err := parseWhole("num_gpu", c.columnValue("num_gpu"))
	if err != nil {
		return err
	}

	milli, err := parseWhole("gpu_milli", c.columnValue("gpu_milli"))
	if err != nil || milli < 0 || milli > 1000 {
		return fmt.Errorf("gpu_milli %q is outside 0 to 1000", cutBrief(c.columnValue("gpu_milli")))
	}

	came, err := parseSeconds("creation_time", c.columnValue("creation_time"))
	if err != nil {
		return err
	}

	if c.columnValue("deletion_time") == "" {
		k.left.unfinished++
		return nil
	}

	gone, err := parseSeconds("deletion_time", c.columnValue("deletion_time"))
	if err != nil {
		return err
	}

	began := came
	if text := c.columnValue("scheduled_time"); text != "" {
		began, err = parseSeconds("scheduled_time", text)
		if err != nil {
			return err
		}
	}

	j := sim.Job{Arrival: int64(came), Lasts: gone - began}
	if milli < 1000 && gpus == 1 {
		j.Share = int16(milli)
	}

	return k.addJob(j, gpus, "")
}

// readSacct: sacct(1) with -P (or --parsable2) and the fields User,Submit,ElapsedRaw,TimelimitRaw,AllocTRES,State.
func readSacct(k *jobCollector, c *columns) error {
	if strings.Contains(c.columnValue("jobid"), ".") {
		k.left.steps++
		return nil
	}

	came, err := parseMoment("Submit", "2006-01-02T15:04:05", c.columnValue("submit"))
	if err != nil {
		return err
	}

	lasts, known, err := parseSlurmSpan("Elapsed", cmp.Or(c.columnValue("elapsedraw"), c.columnValue("elapsed")), time.Second)
	if err != nil {
		return err
	}

	estimate, _, err := parseSlurmSpan("Timelimit", cmp.Or(c.columnValue("timelimitraw"), c.columnValue("timelimit")), time.Minute)
	if err != nil {
		return err
	}

	gpus, err := parseGresGPUs(cmp.Or(c.columnValue("alloctres"), c.columnValue("reqtres")))
	if err != nil {
		return err
	}

	if state := c.columnValue("state"); !known || lasts == 0 && gpus > 0 || state == "RUNNING" || state == "PENDING" {
		k.left.unfinished++
		return nil
	}

	return k.addJob(sim.Job{Arrival: came, Lasts: lasts, Estimate: estimate}, gpus, c.columnValue("user"))
}

// parseMoment reads a time of these centuries, without a zone, as ns since 1970.
func parseMoment(name, layout, text string) (int64, error) {
	at, err := time.Parse(layout, text)
	if err != nil || at.Year() < 1970 || at.Year() > 2200 {
		return 0, fmt.Errorf("%s %q is not a time such as %s", name, cutBrief(text), time.Date(2026, 1, 31, 8, 30, 0, 0, time.UTC).Format(layout))
	}
	return at.UnixNano(), nil
}

// parseSlurmSpan reads [DD-[HH:]]MM:SS, or a number of units; words such as UNLIMITED, and nothing, are unknown.
func parseSlurmSpan(name, text string, unit time.Duration) (d time.Duration, known bool, err error) {
	if text == "" || strings.IndexFunc(text, func(r rune) bool { return r >= '0' && r <= '9' }) != 0 {
		return 0, false, nil
	}

	days, clock, dashed := strings.Cut(text, "-")
	if !dashed {
		days, clock = "0", text
	}

	parts := strings.Split(clock, ":")
	if len(parts) == 1 && !dashed {
		n, err := strconv.ParseUint(text, 10, 31)
		return time.Duration(n) * unit, err == nil, spanError(name, text, err)
	}

	total, err := strconv.ParseUint(days, 10, 14)

	// Of the parts that are there.
	units := []uint64{24, 60, 60}[3-min(3, len(parts)):]
	if dashed {
		// DD-HH, DD-HH:MM and DD-HH:MM:SS.
		units = []uint64{24, 60, 60}[:min(3, len(parts))]
	} else if total = 0; len(parts) < 3 {
		units = []uint64{60, 60}
	}

	for i, part := range parts[:min(3, len(parts))] {
		n, failed := strconv.ParseUint(strings.SplitN(part, ".", 2)[0], 10, 16)
		if failed != nil {
			err = failed
		}
		total = total*units[i] + n
	}

	for range 3 - len(parts) {
		if dashed {
			total *= 60
		}
	}

	return time.Duration(total) * time.Second, err == nil, spanError(name, text, err)
}

func spanError(name, text string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %q is not a time such as 1-02:03:04", name, cutBrief(text))
	}
	return nil

}

// parseGresGPUs reads "cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G": the number without a type is that of all.
func parseGresGPUs(tres string) (int, error) {
	all, typed := -1, 0
	for part := range strings.SplitSeq(tres, ",") {
		name, number, _ := strings.Cut(part, "=")
		if name != "gres/gpu" && !strings.HasPrefix(name, "gres/gpu:") {
			continue
		}

		n, err := parseWhole("gres/gpu", number)
		if err != nil {
			return 0, err
		}

		if name == "gres/gpu" {
			all = n
		} else {
			typed += n
		}
	}
	if all >= 0 {
		return all, nil
	}

	return typed, nil
}

func parseWhole(name, text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a whole number", name, cutBrief(text))
	}
	return int(n), nil
}
