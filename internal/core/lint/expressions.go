package lint

import "strings"

// restoreExpressions puts back what stood in a script before its reader wrote something of the same length for a shell's grammar:
// then Raw of the Script's value has what the file has, and Text the variable that the shell was given (${{ github.ref }}
// of a workflow, $(NAME) of a makefile).
func restoreExpressions(script Value, steps []Step) {
	if len(script.Raw) != len(script.Text) || script.Raw == script.Text {
		return
	}

	var pairs []string

	for i := 0; i+1 < len(script.Text); i++ {
		if script.Text[i] != '$' {
			continue
		}
		length := 2
		if script.Text[i+1] == '{' {
			length = strings.IndexByte(script.Text[i:], '}') + 1
		}
		if length > 0 && script.Raw[i:i+length] != script.Text[i:i+length] {
			pairs = append(pairs, script.Text[i:i+length], script.Raw[i:i+length])
		}
	}

	back := strings.NewReplacer(pairs...)
	changeValues(steps, func(v *Value) { v.Text, v.Raw = back.Replace(v.Text), back.Replace(v.Raw) })
}

// changeValues changes each value of the steps, and of what belongs to them.
func changeValues(steps []Step, change func(v *Value)) {
	for i := range steps {
		s := &steps[i]
		change(&s.Value)

		for j := range s.Words {
			change(&s.Words[j])
		}

		for j := range s.Args {
			change(&s.Args[j].Value)
		}

		changeValues(s.With, change)
	}
}

// leaveOpen says of the values of a script that stood in double quotes that they are not known where they have a $: the shell
// around it fills that in, whatever quotes the script itself puts around it.
func leaveOpen(steps []Step) {
	changeValues(steps, func(v *Value) { v.Known = v.Known && !strings.Contains(v.Text, "$") })
}
