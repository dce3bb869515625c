package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gpuard/internal/core/option"
)

// Metric is a number that a command prints.
type Metric struct {
	Name string
	// Whose first group is the number; nil: a key of JSON.
	pattern *regexp.Regexp
	// The key of an object on a line of its own; dots lead into those in it.
	key string
}

// ParseMetric reads NAME=REGEX or NAME=json:KEY; dots lead into inner objects.
func ParseMetric(text string) (m Metric, err error) {
	name, what, _ := strings.Cut(text, "=")
	key, isJSON := strings.CutPrefix(what, "json:")
	switch {
	case strings.TrimSpace(name) == "" || what == "" || isJSON && key == "":
		return m, option.Errorf("cannot read {metric=%q}: write NAME=REGEX or NAME=json:KEY, such as {metric} 'images/s=([0-9.]+) images/s'", text)
	case slices.Contains([]string{timeName, energyName}, name):
		return m, fmt.Errorf("cannot call a metric %s: that is measured anyway; write another name", name)
	case isJSON:
		return Metric{Name: name, key: key}, nil
	}

	m = Metric{Name: name}

	// ^ and $ are those of a line: a command prints many.
	m.pattern, err = regexp.Compile("(?m)" + what)
	if err != nil {
		return m, option.Errorf("cannot read {metric=%q}: %w", text, err)
	}
	if m.pattern.NumSubexp() < 1 {
		return m, option.Errorf("cannot read {metric=%q}: it has no group; put the number into parentheses, such as 'loss ([0-9.]+)'", text)
	}

	return m, nil
}

// ReadMetrics notes the metrics that a command printed, and the texts in their place that are no numbers.
func (o *Outcome) ReadMetrics(metrics []Metric, output []byte) {
	for _, m := range metrics {
		text, found := m.lastText(output)
		switch v := parseNumber(text); {
		case v != nil:
			o.Metrics = append(o.Metrics, Value{m.Name, *v})
		case found:
			o.Misread = append(o.Misread, Misread{m.Name, text})
		}
	}
}

// lastText is the text in the last place of the metric. An older number does not stand for one that cannot be read.
func (m Metric) lastText(output []byte) (text string, found bool) {
	if m.pattern != nil {
		for _, match := range slices.Backward(m.pattern.FindAllSubmatch(output, -1)) {
			if len(match[1]) > 0 {
				return string(match[1]), true
			}
		}
		return "", false
	}
	for _, line := range slices.Backward(bytes.Split(output, []byte("\n"))) {
		if text, found := m.textInLine(bytes.TrimSpace(line)); found {
			return text, true
		}
	}
	return "", false
}

func (m Metric) textInLine(line []byte) (text string, found bool) {
	if len(line) == 0 || line[0] != '{' {
		return "", false
	}
	value := jsonValue(quoteNaN(line), m.key)
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		return text, json.Unmarshal(value, &text) == nil
	}

	return string(value), value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// jsonValue is the value of a key in an object: of the whole key, else of the key after its first dot in an inner
// object.
func jsonValue(object []byte, key string) json.RawMessage {
	var of map[string]json.RawMessage
	if json.Unmarshal(object, &of) != nil {
		return nil
	}
	if value, found := of[key]; found {
		return value
	}

	outer, inner, _ := strings.Cut(key, ".")
	if inner == "" {
		return nil
	}

	return jsonValue(of[outer], inner)
}

// quoteNaN makes strings of NaN and Infinity, which Python prints and JSON does not have.
func quoteNaN(line []byte) []byte {
	if !bytes.Contains(line, []byte("NaN")) && !bytes.Contains(line, []byte("Infinity")) {
		return line
	}
	return regexp.MustCompile(`"(?:[^"\\]|\\.)*"|NaN|-?Infinity`).ReplaceAllFunc(line, func(part []byte) []byte {
		if part[0] == '"' {
			return part
		}
		return []byte(`"` + string(part) + `"`)
	})
}

// parseNumber reads 1234.5 and 1,234.5; a comma that does not part groups of three digits, as in 1,5, is none of a
// number.
func parseNumber(text string) *float64 {
	// One at the end parts sentences.
	text = strings.TrimRight(strings.TrimSpace(text), ",")
	if strings.Contains(text, ",") {
		if !regexp.MustCompile(`^[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?$`).MatchString(text) {
			return nil
		}
		text = strings.ReplaceAll(text, ",", "")
	}

	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v-v != 0 {
		// Neither infinite nor no number.
		return nil
	}

	return &v
}

// isRate and latency tell by the words of its name what a metric is: things in a second, or the usual time of one. A
// percentile above the median is neither: it can move by itself.
func (m Metric) isRate() bool {
	words := m.nameWords()
	return hasAny(words, "throughput", "rps", "qps", "tps", "fps") || slices.ContainsFunc(wordsAroundPer(words), func(of [2]string) bool { return hasAny(of[1:], "s", "sec", "second") })
}

func (m Metric) isLatency() bool {
	words := m.nameWords()
	if m.isRate() || hasAny(words, "p75", "max", "min") || slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, "p9") }) {
		return false
	}
	return hasAny(words, "latency", "p50", "response") || slices.ContainsFunc(wordsAroundPer(words), func(of [2]string) bool { return hasAny(of[:1], "s", "sec", "second", "seconds", "ms", "us", "ns") })
}

// nameWords are those of the name; img/s is three: img per s.
func (m Metric) nameWords() []string {
	name := strings.ReplaceAll(strings.ToLower(m.Name), "/", " per ")
	return strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// wordsAroundPer are the words before and after each "per".
func wordsAroundPer(words []string) (list [][2]string) {
	for i := 1; i < len(words)-1; i++ {
		if words[i] == "per" {
			list = append(list, [2]string{words[i-1], words[i+1]})
		}
	}
	return list
}

func hasAny(words []string, wanted ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(wanted, word) })
}
