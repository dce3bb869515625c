package setup

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
)

//go:embed alerts.yml
var alertRules string

// PrometheusWish are the files with which Prometheus reads gpuard serve at target and tells what is wrong, and with
// which Grafana shows it, in a folder.
func (s *Setup) PrometheusWish(folder, target string) (ChangePlan, error) {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return ChangePlan{}, fmt.Errorf("cannot find the folder: %w", err)
	}
	if strings.ContainsAny(target, " \t\n\"'\\/") || !strings.Contains(target, ":") {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot read metrics from %q: write the address and the port of gpuard serve, such as box:8470", target)}
	}

	board, err := json.MarshalIndent(grafanaDashboard(), "", "  ")
	if err != nil {
		return ChangePlan{}, err
	}

	const note = "# Written by gpuard setup prometheus; taken away by gpuard setup prometheus --remove.\n"
	scrape, rules, shown := filepath.Join(dir, "gpuard-scrape.yml"), filepath.Join(dir, "gpuard-alerts.yml"), filepath.Join(dir, "gpuard-dashboard.json")

	return ChangePlan{Key: "prometheus " + dir,
		Changes: []edit.Change{
			{Path: scrape, Content: note + fmt.Sprintf("scrape_configs:\n- job_name: gpuard\n  scrape_interval: 5s\n  static_configs:\n  - targets: [%q]\n", target)},
			{Path: rules, Content: note + alertRules},
			{Path: shown, Content: string(board) + "\n"},
		},
		Try: []string{"promtool check rules " + rules, "gpuard serve"},
		Notes: []string{
			"in prometheus.yml, from Prometheus 2.43 on: scrape_config_files: [" + scrape + "] and rule_files: [" + rules + "]",
			"before 2.43 (Debian 12 has 2.42): rule_files as above, and below scrape_configs of prometheus.yml the lines of " + scrape + " from - job_name on",
			"in Grafana, import " + shown + " (Dashboards, New, Import)",
		}}, nil
}
