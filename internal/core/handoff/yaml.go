package handoff

import (
	"strconv"
	"strings"
)

// object is a map of YAML whose keys keep their order.
type object []field

type field struct {
	key string
	// String, int, int64, bool, object, []object, []string or numbers.
	value any
}

// intList is a list of them.
type intList []int

// withField adds a field if it was asked for.
func (o object) withField(asked bool, key string, value any) object {
	if !asked {
		return o
	}
	return append(o, field{key, value})
}

// yamlDocument writes a document in the block style. Every scalar that could be read as something else than its text is
// in double quotes, whose escapes are the same in Go for text that is UTF-8 (yaml.org/spec/1.2.2, 5.7).
func (o object) yamlDocument() string {
	var b strings.Builder
	o.writeFields(&b, "", "")
	return b.String()
}

// writeFields writes the fields, the first behind lead and the others behind indent.
func (o object) writeFields(b *strings.Builder, lead, indent string) {
	for _, f := range o {
		b.WriteString(lead + yamlScalar(f.key) + ":")
		lead = indent

		switch v := f.value.(type) {
		case object:
			if len(v) == 0 {
				b.WriteString(" {}\n")
				continue
			}
			b.WriteString("\n")
			v.writeFields(b, indent+"  ", indent+"  ")
		case []object:
			b.WriteString("\n")
			for _, one := range v {
				one.writeFields(b, indent+"  - ", indent+"    ")
			}
		case []string:
			if len(v) == 0 {
				b.WriteString(" []\n")
				continue
			}
			b.WriteString("\n")

			for _, one := range v {
				b.WriteString(indent + "  - " + yamlScalar(one) + "\n")
			}
		case intList:
			b.WriteString(" [")
			for i, n := range v {
				if i > 0 {
					b.WriteString(", ")
				}
				b.WriteString(strconv.Itoa(n))
			}
			b.WriteString("]\n")
		case string:
			b.WriteString(" " + yamlScalar(v) + "\n")
		case int64:
			b.WriteString(" " + strconv.FormatInt(v, 10) + "\n")
		case int:
			b.WriteString(" " + strconv.Itoa(v) + "\n")
		case bool:
			b.WriteString(" " + strconv.FormatBool(v) + "\n")
		}
	}
}

// yamlScalar quotes a text unless it is a word that no reader takes for anything else.
func yamlScalar(text string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if text == "" || !strings.Contains(letters, text[:1]) || strings.Trim(text, letters+"0123456789_./-") != "" {
		return strconv.Quote(text)
	}

	switch strings.ToLower(text) {
	// What YAML 1.1 reads as something else.
	case "y", "yes", "n", "no", "true", "false", "on", "off", "null":
		return strconv.Quote(text)
	}

	return text
}
