package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/suggest"
)

// fileKey is what the tags of a field say of its key in a machine file:
//
//	file  the key, and "required" where it must be there. A required reading may be null, a required list must not.
//	min   the lowest number, 0 where nothing is written
//	max   the highest number
//	form  what a text must be: see formOf
//
// A number or a text that is no pointer and not required is left out when it is zero, which means unknown.
type fileKey struct {
	name      string
	required  bool
	field     int // its position in the struct
	low, high float64
	form      string
}

// fileKeys are the keys of an object, in the order in which they are written.
func fileKeys(object reflect.Type) (keys []fileKey) {
	for i := range object.NumField() {
		field := object.Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("file"), ",")
		if name == "" {
			continue
		}

		k := fileKey{name: name, required: option == "required", field: i, high: 1 << 62, form: field.Tag.Get("form")}
		if field.Type == reflect.TypeFor[*Bytes]() {
			k.high = float64(memoryLimit)
		}
		if low, err := strconv.ParseFloat(field.Tag.Get("min"), 64); err == nil {
			k.low = low
		}
		if high, err := strconv.ParseFloat(field.Tag.Get("max"), 64); err == nil {
			k.high = high
		}

		keys = append(keys, k)
	}
	return keys
}

// readObject sets the fields of a struct. Keys that it does not know are kept in its field Extra, if it has one.
func (d *document) readObject(n *node, path string, into reflect.Value) error {
	if n.token != json.Delim('{') {
		return d.errorAt(n.begin, "%s must be an object", pathOrFile(path))
	}

	keys := fileKeys(into.Type())
	isKnown := func(name string) bool {
		return slices.ContainsFunc(keys, func(k fileKey) bool { return k.name == name })
	}
	unknown := slices.DeleteFunc(slices.Clone(n.items), func(item node) bool { return isKnown(item.key) })

	for _, k := range keys {
		v := n.findKey(k.name)
		if v == nil && !k.required {
			continue
		}
		if v == nil {
			return d.missingKeyError(n, unknown, path, k.name)
		}
		if err := d.readValue(v, joinPath(path, k.name), into.Field(k.field), k); err != nil {
			return err
		}
	}

	extra := into.FieldByName("Extra")
	if !extra.IsValid() || len(unknown) == 0 {
		return nil
	}

	kept := extraKeys{}
	for _, item := range unknown {
		var raw bytes.Buffer
		if err := json.Compact(&raw, d.data[item.begin:item.end]); err != nil {
			return d.errorAt(item.begin, "%s: %v", joinPath(path, item.key), err)
		}
		kept[item.key] = raw.Bytes()
	}
	extra.Set(reflect.ValueOf(kept))

	return nil
}

// missingKeyError reports the unknown key most similar to the missing one, else the object.
func (d *document) missingKeyError(n *node, unknown []node, path, name string) error {
	best, far := -1, 1+len(name)/3
	for i, item := range unknown {
		if dist := suggest.Distance(item.key, name); dist <= far && (best < 0 || dist < far) {
			best, far = i, dist
		}
	}
	if best >= 0 {
		return d.errorAt(unknown[best].keyAt, "%s is not a key; the nearest valid key is %q: rename it", joinPath(path, unknown[best].key), name)
	}

	return d.errorAt(n.begin, "%s is missing: add it (a reading that is not known is null)", joinPath(path, name))
}

// readValue sets one variable by its type.
func (d *document) readValue(n *node, path string, into reflect.Value, k fileKey) error {
	if into.Kind() == reflect.Pointer {
		if n.token == nil {
			return nil
		}
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}

	switch into.Interface().(type) {
	case time.Time:
		return d.readTime(n, path, into)
	case Capability:
		return d.readCapability(n, path, into)
	}

	switch into.Kind() {
	case reflect.Struct:
		return d.readObject(n, path, into)
	case reflect.Slice:
		return d.readList(n, path, into, k)
	case reflect.String:
		return d.readText(n, path, into, k)
	case reflect.Bool:
		value, isBool := n.token.(bool)
		if !isBool {
			return d.errorAt(n.begin, "%s must be true or false", path)
		}
		into.SetBool(value)
		return nil
	}

	return d.readNumber(n, path, into, k)
}

// readList sets a slice; null leaves it nil, which is absent and differs from empty.
func (d *document) readList(n *node, path string, into reflect.Value, k fileKey) error {
	if n.token == nil && !k.required {
		return nil
	}
	if n.token != json.Delim('[') {
		return d.errorAt(n.begin, "%s must be a list", path)
	}

	into.Set(reflect.MakeSlice(into.Type(), len(n.items), len(n.items)))
	for i := range n.items {
		if err := d.readValue(&n.items[i], fmt.Sprintf("%s[%d]", path, i), into.Index(i), k); err != nil {
			return err
		}
	}

	return nil
}

func (d *document) readNumber(n *node, path string, into reflect.Value, k fileKey) error {
	text, isNumber := n.token.(json.Number)
	if !isNumber {
		return d.errorAt(n.begin, "%s must be a number", path)
	}

	// Of the variable's type, so that sizes are written with their unit.
	limit := func(f float64) any { return reflect.ValueOf(f).Convert(into.Type()).Interface() }
	integer, notInteger := strconv.ParseInt(text.String(), 10, 64)
	f, err := strconv.ParseFloat(text.String(), 64)

	switch isWhole := into.Kind() != reflect.Float64; {
	case into.CanUint() && notInteger == nil && integer < 0:
		return d.errorAt(n.begin, "%s is %s, which must not be negative", path, text)
	case err != nil || f < k.low || f > k.high:
		return d.errorAt(n.begin, "%s is %s, outside %v to %v", path, text, limit(k.low), limit(k.high))
	case isWhole && notInteger != nil && (f != math.Trunc(f) || math.Abs(f) > 1<<53):
		return d.errorAt(n.begin, "%s is %s, which must be a whole number", path, text)
	case isWhole && notInteger == nil:
		into.Set(reflect.ValueOf(integer).Convert(into.Type()))
	default:
		into.Set(reflect.ValueOf(f).Convert(into.Type()))
	}

	return nil
}

// readText sets a string, cleaned because it is printed on terminals.
func (d *document) readText(n *node, path string, into reflect.Value, k fileKey) error {
	text, isText := n.token.(string)
	if !isText && n.token != nil {
		return d.errorAt(n.begin, "%s must be a string", path)
	}

	text = prose.Clean(text)
	form := formOf(k.form)
	tidied := text
	if form.tidy != nil && text != "" {
		tidied = form.tidy(text)
	}

	switch {
	case text == "" && form.filled:
		return d.errorAt(n.begin, "%s must not be empty: write %s", path, form.want)
	case text != "" && tidied == "":
		return d.errorAt(n.begin, "%s is %q: write %s", path, text, form.want)
	}

	into.SetString(tidied)

	return nil
}

// textForm is what a text must be.
type textForm struct {
	// "" and null are errors.
	filled bool
	// What is wanted, in words.
	want string
	// Converts the text to its normal form; "" when it has none.
	tidy func(string) string
}

func formOf(name string) textForm {
	switch name {
	case "uuid":
		return textForm{true, "a device's UUID such as GPU-8932f937-…", tidyUUID}
	case "name":
		return textForm{true, "the model's name", nil}
	case "vendor":
		return oneOf(true, Vendors()...)
	case "pci":
		return textForm{false, "a PCI address such as 0000:17:00.0", KernelAddress}
	case "profile":
		return textForm{true, "a profile such as 1g.10gb", nil}
	case "kind":
		return oneOf(false, ComputeProcess, GraphicsProcess, BothKinds)
	case "link":
		return oneOf(false, LinkSelf, LinkNVLink, LinkSwitch, LinkBridge, LinkNode, LinkSystem)
	}
	return textForm{}
}

// oneOf accepts only the given words.
func oneOf[S ~string](filled bool, words ...S) textForm {
	accepted := prose.Texts(words, func(w S) string { return string(w) })

	return textForm{filled, "one of " + strings.Join(accepted, ", "), func(text string) string {
		if !slices.Contains(accepted, text) {
			return ""
		}
		return text
	}}
}

// tidyUUID refuses commas and spaces, because a UUID is written to comma-separated variables and to terminals.
func tidyUUID(text string) string {
	if len(text) > 128 || strings.ContainsAny(text, ", ;=\u00a0\t") {
		return ""
	}
	return text
}

// readTime sets a time in RFC 3339; null is the zero time, which means unknown.
func (d *document) readTime(n *node, path string, into reflect.Value) error {
	if n.token == nil {
		return nil
	}

	text, _ := n.token.(string)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return d.errorAt(n.begin, "%s must be a time such as \"2026-01-31T14:05:00Z\"", path)
	}
	into.Set(reflect.ValueOf(t.UTC()))

	return nil
}

func (d *document) readCapability(n *node, path string, into reflect.Value) error {
	text, _ := n.token.(string)
	c, err := ParseCapability(text)
	if err != nil {
		return d.errorAt(n.begin, "%s must be a compute capability such as \"8.0\"", path)
	}
	into.Set(reflect.ValueOf(c))

	return nil
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func pathOrFile(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}
