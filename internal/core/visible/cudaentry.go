package visible

import (
	"fmt"
	"strings"
)

// number is an entry read as strtoul reads it: blanks, a sign, decimal digits, and the rest ignored.
type number struct {
	ok       bool // there was at least one digit
	value    int  // -1 for anything below zero, tooLarge for anything that does not fit
	junk     string
	octal    bool // a leading zero would give another value in base 8 or 16
	overflow bool
	sign     bool // a lone sign
}

const (
	tooLarge = 1 << 30
	blanks   = " \t\n\v\f\r"
)

func readNumber(s string) number {
	s = strings.Trim(s, blanks)
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return number{}
	}
	negative := strings.HasPrefix(s, "-")
	var n number
	end := 0
	for ; end < len(digits) && digits[end] >= '0' && digits[end] <= '9'; end++ {
		if n.value = n.value*10 + int(digits[end]-'0'); n.value >= tooLarge {
			n.value, n.overflow = tooLarge, true
		}
	}
	n.ok, n.junk = end > 0, digits[end:]
	n.sign = !n.ok && len(s) > len(digits)
	leading := strings.HasPrefix(digits, "0")
	n.octal = leading && strings.TrimLeft(digits[:end], "0") != "" && n.value > 7 || leading && end == 1 && (strings.HasPrefix(n.junk, "x") || strings.HasPrefix(n.junk, "X"))
	if negative && n.value != 0 {
		n.value = -1
	}
	return n
}

// notNumber notes why an entry of a number list is no number. Such an entry ends the list.
func (r *cudaReader) notNumber(tokens []string, i int) {
	entry, dropped := strings.Trim(tokens[i], blanks), rest(tokens, i)
	switch n := readNumber(entry); {
	case entry == "":
		r.add(codeUndocumented, "an empty entry ends the list%s; drivers may differ", dropped)
	case n.sign:
		r.add(codeUndocumented, "entry %s is a sign without a number and ends the list%s; drivers may differ", quoted(entry), dropped)
	case isWord(entry):
		r.add(codeWord, "%s is no word of this variable (all, none and void belong to NVIDIA_VISIBLE_DEVICES, NoDevFiles was Slurm's) and ends the list%s", quoted(entry), dropped)
		r.open(i == 0 && entry != "NoDevFiles")
	case strings.ContainsAny(entry, `"'`):
		r.add(codeQuotes, "%s", r.quotes(i))
		r.open(true)
	case isIdentifier(entry):
		r.identifierInNumbers(tokens, i)
	default:
		r.add(codeNotNumber, "%s is no number and ends the list%s%s", quoted(entry), dropped, r.suggestion(entry))
		r.open(strings.Contains(entry, ":"))
	}
}

// quotes describes quotation marks in the value itself, and what to write instead.
func (r *cudaReader) quotes(i int) string {
	text := fmt.Sprintf("the quotation marks are part of the value, and no number begins with one: the list ends at its entry %d", i+1)
	if bare := strings.NewReplacer(`"`, "", "'", "").Replace(r.value); strings.Trim(bare, ","+blanks) != "" {
		text += "; write " + variable{r.name, bare}.String()
	}
	return text
}

// suggestion suggests the identifier that starts with the entry, when its prefix was left out or it was typed in
// capital letters.
func (r *cudaReader) suggestion(entry string) string {
	digits := strings.ToLower(strings.Trim(entry, blanks))
	for _, prefix := range []string{"GPU-", "MIG-"} {
		whole := prefix + strings.TrimPrefix(digits, strings.ToLower(prefix))
		if len(whole) < len(prefix)+3 || whole == entry {
			continue
		}
		for _, c := range everything(r.devices) {
			if strings.HasPrefix(string(c.uuid()), whole) {
				return "; did you mean " + whole + "?"
			}
		}
	}
	return ""
}

// open adds the note for behaviour that is known only from PyTorch's reading.
func (r *cudaReader) open(yes bool) {
	if yes {
		r.add(codeUndocumented, "this is how PyTorch reads it; drivers may differ")
	}
}

func (r *cudaReader) identifierInNumbers(tokens []string, i int) {
	switch {
	case i > 0:
		r.add(codeMixed, "entry %s is an identifier in a list that began with numbers and ends it%s", quoted(tokens[i]), rest(tokens, i))
	case tokens[0] != strings.TrimLeft(tokens[0], blanks):
		r.add(codeUnknownUUID, "the blank before %s keeps it from being read as an identifier, which ends the list%s", quoted(tokens[i]), rest(tokens, i))
	default:
		r.add(codeUnknownUUID, "%s is not read as an identifier (GPU- and MIG- are written in capitals) and ends the list%s%s", quoted(tokens[i]), rest(tokens, i), r.suggestion(tokens[i]))
	}
	r.open(true)
}

// junk notes what was ignored after a number.
func (r *cudaReader) junk(entry string, n number) {
	tail := strings.TrimLeft(n.junk, blanks)
	second := readNumber(strings.TrimLeft(tail, "-–.:;|/"+blanks))
	switch {
	case n.octal:
		r.add(codeUndocumented, "entry %s is read as %d; drivers that understand hexadecimal differ", quoted(entry), n.value)
	case second.ok && (strings.HasPrefix(tail, "-") || strings.HasPrefix(tail, "–") || strings.HasPrefix(tail, "..") || strings.HasPrefix(tail, ":")):
		r.add(codeRange, "ranges are not understood: %s is read as %d alone; write every number, separated by commas", quoted(entry), n.value)
	case second.ok && (len(tail) < len(n.junk) || strings.ContainsAny(tail[:1], ";|/")):
		r.add(codeSeparator, "only commas separate entries: %s is read as %d alone", quoted(entry), n.value)
		r.open(true)
	default:
		r.add(codeJunk, "what follows the number in %s is ignored: it is read as %d", quoted(entry), n.value)
	}
}

func isWord(s string) bool {
	switch strings.ToLower(s) {
	case "all", "none", "void", "nodevfiles":
		return true
	}
	return false
}

func isIdentifier(s string) bool {
	s = strings.ToUpper(s)
	return strings.HasPrefix(s, "GPU-") || strings.HasPrefix(s, "MIG-")
}

// identifier reads an entry of a list that began with prefix.
func (r *cudaReader) identifier(tokens []string, i int, prefix string) (choice, bool) {
	entry := tokens[i]
	if !strings.HasPrefix(entry, prefix) {
		r.add(codeMixed, "entry %s ends the list, which began with %s… identifiers%s", quoted(entry), prefix, rest(tokens, i))
		r.open(strings.HasPrefix(strings.Trim(entry, blanks), prefix)) // only a leading blank is wrong
		return choice{}, false
	}
	found := r.matches(entry)
	if len(found) == 1 {
		return found[0], true
	}
	code, what := codeUnknownUUID, "matches no NVIDIA GPU"
	if prefix == "MIG-" {
		what = "matches no MIG device"
	}
	if len(found) > 1 {
		code, what = codeAmbiguous, "is the beginning of several identifiers"
	}
	hint := ""
	if len(found) == 0 {
		if hint = r.suggestion(entry); hint != "" {
			what += " (capital and small letters differ)"
		}
	}
	r.add(code, "%s %s and ends the list%s%s", quoted(entry), what, rest(tokens, i), hint)
	r.open(hint != "" || entry != strings.TrimRight(entry, blanks))
	return choice{}, false
}

// matches finds what an identifier, or the beginning of one, means.
func (r *cudaReader) matches(entry string) []choice {
	var found []choice
	if !strings.HasPrefix(entry, "MIG-") {
		for _, d := range r.devices {
			if strings.HasPrefix(string(d.UUID), entry) {
				found = append(found, choice{dev: d})
			}
		}
		return found
	}
	parent, path, old := strings.Cut(strings.TrimPrefix(entry, "MIG-"), "/")
	for _, d := range r.devices {
		for j := range d.MIG {
			slice := &d.MIG[j]
			switch {
			case string(slice.UUID) == entry:
				return []choice{{d, slice}}
			case old:
				// MIG-<GPU UUID>/<GPU instance>/<compute instance>, the form of drivers before R470.
				if strings.HasPrefix(parent, "GPU-") && strings.HasPrefix(string(d.UUID), parent) && path == instancePath(slice) {
					found = append(found, choice{d, slice})
				}
			case strings.HasPrefix(string(slice.UUID), entry):
				found = append(found, choice{d, slice})
			}
		}
	}
	if len(found) == 1 && !old {
		r.add(codeUndocumented, "%s is only the beginning of a MIG identifier; drivers may want all of it", quoted(entry))
	}
	return found
}
