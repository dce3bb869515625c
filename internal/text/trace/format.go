package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/sim"
)

// format is one kind of table.
type format struct {
	name  string
	mark  string   // a column that no other format has
	needs []string // columns; a/b: one of them
	read  func(*keeper, *columns) error
}

func formats() []format {
	return []format{
		{"a Philly trace", "num_gpus", []string{"timestamp", "duration", "num_gpus"}, philly},
		{"an openb list of pods", "gpu_milli", []string{"num_gpu", "gpu_milli", "creation_time", "deletion_time"}, openb},
		{"the answer of sacct -P", "submit", []string{"submit", "elapsedraw/elapsed", "alloctres/reqtres"}, sacct},
		{"a Philly trace", "timestamp", []string{"timestamp", "duration", "num_gpus"}, philly}, // says which column is missing
		{"the answer of sacct -P", "jobid", []string{"submit", "elapsedraw/elapsed", "alloctres/reqtres"}, sacct},
	}
}

// philly: the reduction of msr-fiddle/philly-traces by the authors of Pollux (petuum/adaptdl, branch osdi21-artifact,
// simulator/traces/philly.csv). A column user or user_id is read if there is one.
func philly(k *keeper, c *columns) error {
	at, err := moment("timestamp", time.DateTime, c.value("timestamp"))
	if err != nil {
		return err
	}
	lasts, err := seconds("duration", c.value("duration"))
	if err != nil {
		return err
	}
	gpus, err := whole("num_gpus", c.value("num_gpus"))
	if err != nil {
		return err
	}
	user := c.value("user")
	if user == "" {
		user = c.value("user_id")
	}
	return k.add(sim.Job{Arrival: at, Lasts: lasts}, gpus, user)
}

// openb: hkust-adsl/kubernetes-scheduler-simulator, data/csv/openb_pod_list_*.csv. Times are seconds since the beginning
// of the record; gpu_milli is the part of a GPU's computing, taken here for the part of its memory.
func openb(k *keeper, c *columns) error {
	gpus, err := whole("num_gpu", c.value("num_gpu"))
	if err != nil {
		return err
	}
	milli, err := whole("gpu_milli", c.value("gpu_milli"))
	if err != nil || milli < 0 || milli > 1000 {
		return fmt.Errorf("gpu_milli %q is outside 0 to 1000", brief(c.value("gpu_milli")))
	}
	came, err := seconds("creation_time", c.value("creation_time"))
	if err != nil {
		return err
	}
	if c.value("deletion_time") == "" {
		k.left.unfinished++
		return nil
	}
	gone, err := seconds("deletion_time", c.value("deletion_time"))
	if err != nil {
		return err
	}
	began := came
	if text := c.value("scheduled_time"); text != "" {
		if began, err = seconds("scheduled_time", text); err != nil {
			return err
		}
	}
	j := sim.Job{Arrival: int64(came), Lasts: gone - began}
	if milli < 1000 && gpus == 1 {
		j.Share = int16(milli)
	}
	return k.add(j, gpus, "")
}

// sacct: sacct(1) with -P (or --parsable2) and the fields User,Submit,ElapsedRaw,TimelimitRaw,AllocTRES,State.
func sacct(k *keeper, c *columns) error {
	if strings.Contains(c.value("jobid"), ".") {
		k.left.steps++
		return nil
	}
	came, err := moment("Submit", "2006-01-02T15:04:05", c.value("submit"))
	if err != nil {
		return err
	}
	elapsed := c.value("elapsedraw")
	if elapsed == "" {
		elapsed = c.value("elapsed")
	}
	lasts, known, err := slurmSpan("Elapsed", elapsed, time.Second)
	if err != nil {
		return err
	}
	limit := c.value("timelimitraw")
	if limit == "" {
		limit = c.value("timelimit")
	}
	estimate, _, err := slurmSpan("Timelimit", limit, time.Minute)
	if err != nil {
		return err
	}
	tres := c.value("alloctres")
	if tres == "" {
		tres = c.value("reqtres")
	}
	gpus, err := gresGPUs(tres)
	if err != nil {
		return err
	}
	if state := c.value("state"); !known || lasts == 0 && gpus > 0 || state == "RUNNING" || state == "PENDING" {
		k.left.unfinished++
		return nil
	}
	return k.add(sim.Job{Arrival: came, Lasts: lasts, Estimate: estimate}, gpus, c.value("user"))
}

// moment reads a time of these centuries, without a zone, as ns since 1970.
func moment(name, layout, text string) (int64, error) {
	at, err := time.Parse(layout, text)
	if err != nil || at.Year() < 1970 || at.Year() > 2200 {
		return 0, fmt.Errorf("%s %q is not a time such as %s", name, brief(text), time.Date(2026, 1, 31, 8, 30, 0, 0, time.UTC).Format(layout))
	}
	return at.UnixNano(), nil
}

// slurmSpan reads [DD-[HH:]]MM:SS, or a number of units; words such as UNLIMITED, and nothing, are unknown.
func slurmSpan(name, text string, unit time.Duration) (d time.Duration, known bool, err error) {
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
	units := []uint64{24, 60, 60}[3-min(3, len(parts)):] // of the parts that are there
	if dashed {                                          // DD-HH, DD-HH:MM and DD-HH:MM:SS
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
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q is not a time such as 1-02:03:04", name, brief(text))
}

// gresGPUs reads "cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G": the number without a type is that of all.
func gresGPUs(tres string) (int, error) {
	all, typed := -1, 0
	for part := range strings.SplitSeq(tres, ",") {
		name, number, _ := strings.Cut(part, "=")
		if name != "gres/gpu" && !strings.HasPrefix(name, "gres/gpu:") {
			continue
		}
		n, err := whole("gres/gpu", number)
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

func whole(name, text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a whole number", name, brief(text))
	}
	return int(n), nil
}
