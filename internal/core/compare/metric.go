package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metric is a number that a command prints.
type Metric struct {
	Name    string
	pattern *regexp.Regexp // whose first group is the number; nil: a key of JSON
	key     []string       // of an object on a line of its own, and of those in it
}

// ParseMetric reads NAME=REGEX or NAME=json:KEY; dots lead into inner objects.
func ParseMetric(text string) (m Metric, err error) {
	name, what, _ := strings.Cut(text, "=")
	key, isJSON := strings.CutPrefix(what, "json:")
	switch {
	case strings.TrimSpace(name) == "" || what == "" || isJSON && key == "":
		return m, fmt.Errorf("cannot read --metric %q: write NAME=REGEX or NAME=json:KEY, such as --metric 'images/s=([0-9.]+) images/s'", text)
	case slices.Contains([]string{timeName, energyName}, name):
		return m, fmt.Errorf("cannot call a metric %s: that is measured anyway; write another name", name)
	case isJSON:
		return Metric{Name: name, key: strings.Split(key, ".")}, nil
	}
	m = Metric{Name: name}
	if m.pattern, err = regexp.Compile(what); err != nil {
		return m, fmt.Errorf("cannot read --metric %q: %w", text, err)
	}
	if m.pattern.NumSubexp() < 1 {
		return m, fmt.Errorf("cannot read --metric %q: it has no group; put the number into parentheses, such as 'loss ([0-9.]+)'", text)
	}
	return m, nil
}

// In finds the last such number in what a command printed; nil: there is none.
func (m Metric) In(output []byte) *float64 {
	if m.pattern != nil {
		all := m.pattern.FindAllSubmatch(output, -1)
		for _, match := range slices.Backward(all) {
			if v := number(string(match[1])); v != nil {
				return v
			}
		}
		return nil
	}
	for len(output) > 0 {
		line := output
		if i := bytes.LastIndexByte(output, '\n'); i >= 0 {
			line, output = output[i+1:], output[:i]
		} else {
			output = nil
		}
		if v := m.inLine(bytes.TrimSpace(line)); v != nil {
			return v
		}
	}
	return nil
}

func (m Metric) inLine(line []byte) *float64 {
	if len(line) == 0 || line[0] != '{' {
		return nil
	}
	var value any
	if json.Unmarshal(line, &value) != nil {
		return nil
	}
	for _, key := range m.key {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	switch v := value.(type) {
	case float64:
		return &v
	case string:
		return number(v)
	}
	return nil
}

// number reads 1234.5 and 1,234.5.
func number(text string) *float64 {
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || v-v != 0 { // neither infinite nor no number
		return nil
	}
	return &v
}

// rate and latency tell by its name what a metric is: things in a second, or the usual time of one. A percentile above the
// median is neither: it can move by itself.
func (m Metric) rate() bool {
	return hasAny(m.Name, "/s", "per_s", "per second", "throughput", "rps", "qps", "tps", "fps")
}

func (m Metric) latency() bool {
	return !m.rate() && hasAny(m.Name, "latency", "p50", "response") && !hasAny(m.Name, "p9", "p75", "max", "min")
}

func hasAny(name string, words ...string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}
