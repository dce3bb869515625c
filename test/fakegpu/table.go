package fakegpu

import (
	"fmt"
	"strconv"
	"strings"
)

// Answer is one row of the table that the fake libcuda answers from: what a process with these variables gets.
type Answer struct {
	Visible, Order *string // CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; nil for a variable that is not set
	Code           int     // what cuInit returns
	Devices        []Seen  // in the order of their ordinals
}

// Seen is one device of an Answer.
type Seen struct {
	UUID   string // "GPU-…" or "MIG-…"
	PCI    string // "0000:17:00.0"
	Parent string // UUID of the whole device, for a MIG device; else ""
}

// SetCUDATable replaces the table, which New makes with one row: all devices, without variables. A process whose variables are in no row gets 999 (CUDA_ERROR_UNKNOWN) from cuInit.
func (d *Driver) SetCUDATable(rows ...Answer) {
	d.t.Helper()
	var text strings.Builder
	for _, r := range rows {
		devices := make([]string, len(r.Devices))
		for i, s := range r.Devices {
			devices[i] = s.UUID + "," + s.PCI
			if s.Parent != "" {
				devices[i] += "," + s.Parent
			}
		}
		fmt.Fprintf(&text, "%s %s %d %s\n", Escape(r.Visible), Escape(r.Order), r.Code, orDefault(strings.Join(devices, ";"), "-"))
	}
	d.WriteFile("cuda_table", text.String())
}

func orDefault(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}

// Escape writes the value of a variable as one word: "-" when it is not set, else "=" and the value with %XX for
// blanks, control characters, bytes above 126, "%" and "#".
func Escape(value *string) string {
	if value == nil {
		return "-"
	}
	out := []byte{'='}
	for _, c := range []byte(*value) {
		if c > ' ' && c < 0x7f && c != '%' && c != '#' {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}

// Unescape reads what Escape wrote.
func Unescape(word string) (*string, error) {
	if word == "-" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(word, "=")
	if !ok {
		return nil, fmt.Errorf("cannot read the value %q: it begins with = (or is - for a variable that is not set)", word)
	}
	var out []byte
	for i := 0; i < len(rest); i++ {
		if rest[i] != '%' {
			out = append(out, rest[i])
			continue
		}
		if i+3 > len(rest) {
			return nil, fmt.Errorf("cannot read the value %q: it ends within %%XX", word)
		}
		n, err := strconv.ParseUint(rest[i+1:i+3], 16, 8)
		if err != nil {
			return nil, fmt.Errorf("cannot read the value %q: %w", word, err)
		}
		out = append(out, byte(n))
		i += 2
	}
	return new(string(out)), nil
}
