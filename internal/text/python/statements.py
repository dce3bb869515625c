TEARDOWN = "teardown"


class Statements(object):
    """Steps said, and the statements that they come from, in the order of the file."""

    def say(self, do, node, name="", **more):
        step = {"do": do, "name": name, "at": self.at(node)}
        if self.inside:
            step["in"] = self.inside
        if self.branch:
            step["branch"] = self.branch
        if self.catching:
            step["caught"] = True
        if self.idle:
            step["idle"] = True
        step.update(more)
        self.out.append(step)
        return step

    def set(self, node, key, value, how):
        if key is not None:
            if key in self.asking:
                how = "os.environ.setdefault"  # the program has looked whether it is there
            how = TEARDOWN if self.cleaning else how
            step = self.say("set", node, key, how=how)
            if value is not None:
                step["value"] = self.shaped(value)

    def unset(self, node, key, how):
        if key is not None:
            self.say("unset", node, key, how=TEARDOWN if self.cleaning else how)

    def arguments(self, node):
        args = []
        for name, a in [("", a) for a in node.args] + [(k.arg or "**", k.value) for k in node.keywords]:
            known = self.scope.find(a.id) if isinstance(a, ast.Name) else None
            args.append(self.argument(name, known.node if isinstance(known, Words) and a.id not in self.functions else a))
            for literal in known.nodes if isinstance(known, Choice) else self.choices(a):
                args.append(dict(self.argument(name, literal), ref="?"))
        return args

    def choices(self, node):
        """The values of "a if test else b" of which something is known."""
        if isinstance(node, ast.Call) and self.dotted(node.func) == "torch.device" and len(node.args) == 1:
            node = node.args[0]
        return [n for n in (node.body, node.orelse) if self.text(n) is not None or self.origin(n)] if isinstance(node, ast.IfExp) and not self.counts(node.test) else []

    def argument(self, name, node):
        arg = self.value(node)
        arg["name"] = name
        if name in ("device_ids", "gpus") and isinstance(node, ast.List):
            arg["text"] = self.shown(node)
        ref = self.dotted(node)
        if ref is None and isinstance(node, ast.Call):
            ref = self.dotted(node.func)
            if ref == "functools.partial" and node.args:
                ref = self.dotted(node.args[0])
        if ref:
            arg["ref"] = ref
        return arg

    # -- statements

    def block(self, statements):
        for s in statements:
            do = STATEMENTS.get(s.__class__)
            if do is not None:
                do(self, s)
            else:
                self.expressions(s)
                if self.borrowed and isinstance(s, ast.Expr) and isinstance(s.value, ast.Yield):
                    self.cleaning = True

    def arm(self, letter, number, which, statements):
        if not statements:
            return
        before = self.branch
        self.branch = "%s%s%d.%d%s/" % (before, letter, number, which, self.leaves(statements))
        self.block(statements)
        self.branch = before

    def leaves(self, statements):
        last = statements[-1]
        if isinstance(last, (ast.Return, ast.Continue, ast.Break)):
            return "!"
        if isinstance(last, ast.Raise):
            return "!!"
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            name = self.dotted(last.value.func)
            if name in LEAVERS or name and name.startswith("os.exec"):
                return "!!"
        return ""

    def number(self):
        self.count += 1
        return self.count

    def narrow(self, test):
        """A condition is there because a name has other values, too: within it what the file wrote does not count. A number
        stays a number, unless the condition asks for its type. What was there before is for widen."""
        typed = any(isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id in ("isinstance", "type") for x in ast.walk(test))
        given = set(x.target.id for x in ast.walk(test) if NAMED and isinstance(x, NAMED))
        kept = []
        for x in ast.walk(test):
            name = self.path(x) if isinstance(x, (ast.Name, ast.Attribute)) else None
            known = self.scope.find(name) if name and name not in given else None
            if isinstance(known, (Known, Computed, Words)):
                kind = "list" if isinstance(known, Words) else known.kind
                falsy = isinstance(known, Known) and known.text in ("", "0", "False")
                now = UNKNOWN if typed and kind or kind == "None" or falsy else Computed(name, kind) if isinstance(known, Known) else known
            else:
                now = UNKNOWN if known is None and name and typed and name.split(".")[-1] in self.options else known
            if now is not known:
                kept.append((name, self.scope.names.get(name), now))
                self.scope.names[name] = now
        return kept

    def widen(self, kept, *arms):
        """Behind a condition a name is what it was before, unless an arm gave it another value, or ended there."""
        if any(a and self.leaves(a) for a in arms):
            return
        for name, before, now in reversed(kept):
            if self.scope.names.get(name) is not now:
                continue
            if before is None:
                self.scope.names.pop(name)
            else:
                self.scope.names[name] = before

    def do_if(self, s):
        self.expression(s.test)
        test = s.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            sides = (test.left, test.comparators[0])
            if any(isinstance(x, ast.Name) and x.id == "__name__" for x in sides) and any(constant(x) == "__main__" for x in sides):
                return self.arm("m", self.number(), 0, s.body)
        letter = "g" if self.counts(test) else "i"
        never = self.dotted(test) in ("typing.TYPE_CHECKING", "TYPE_CHECKING") or constant(test) in ("False", "0")
        if constant(test) in ("True", "1"):
            return self.block(s.body)
        off = isinstance(test, ast.Name) and self.is_off(test.id)
        kept = self.narrow(test)
        n = self.number()
        before = self.asking
        if "environ" in self.hints or "getenv" in self.hints:
            self.asking = before + tuple(constant(x) for x in ast.walk(test) if quoted(x))
        if not never:
            idle, self.idle = self.idle, self.idle or off
            self.arm(letter, n, 0, s.body)
            self.idle = idle
        self.arm(letter, n, 1, s.orelse)
        self.asking = before
        self.widen(kept, s.body, s.orelse)

    def is_off(self, name):
        """Whether a name is a constant that is false, and is given no other value anywhere in the file."""
        known = self.scope.find(name)
        if not isinstance(known, Known) or known.kind not in ("int", "bool", "None") or known.text not in ("0", "False", "None"):
            return False
        if self.stored is None:
            self.stored = {}
            for x in [x for tree in self.trees for x in ast.walk(tree)]:
                for word in [x.id] if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load) else x.names if isinstance(x, (ast.Global, ast.Nonlocal)) else []:
                    self.stored[word] = self.stored.get(word, 0) + 1
                if isinstance(x, ast.ImportFrom) and any(n.name == "*" for n in x.names):
                    self.stored["*"] = 1
        return self.stored.get(name) == 1 and "*" not in self.stored

    def counts(self, test):
        """Whether a condition asks how many devices there are."""
        if not self.hints & DEVICE_COUNTS:
            return False
        for x in ast.walk(test):
            if isinstance(x, ast.Attribute) and x.attr in DEVICE_COUNTS or (self.path(x) if isinstance(x, (ast.Name, ast.Attribute)) else None) in self.counters:
                return True
        return False

    def do_loop(self, s):
        if isinstance(s, ast.While):
            self.expression(s.test)
            if constant(s.test) in ("True", "1"):
                return self.block(s.body)
            kept = self.narrow(s.test)
        else:
            self.expression(s.iter)
            self.forget(s.target)
            counter = s.target if self.kind(s.iter) == "range" else s.target.elts[0] if isinstance(s.target, ast.Tuple) and s.target.elts else None
            if isinstance(counter, ast.Name) and (counter is s.target or isinstance(s.iter, ast.Call) and self.dotted(s.iter.func) == "enumerate"):
                known = self.scope.names.get(counter.id)
                self.scope.names[counter.id] = Computed(known.origin if isinstance(known, Computed) else counter.id, "int")
            if self.pairs(s):
                return self.block(s.body)
        n = self.number()
        self.arm("l", n, 0, s.body)
        self.arm("l", n, 1, s.orelse)
        if isinstance(s, ast.While):
            self.widen(kept)

    def pairs(self, s):
        """for k, v in {...}.items(): its body certainly runs."""
        it, target = s.iter, s.target
        if not (isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr == "items" and not it.args):
            return False
        made = self.mapping(it.func.value)
        if made is None or not isinstance(target, ast.Tuple) or len(target.elts) != 2 or not all(isinstance(e, ast.Name) for e in target.elts):
            return False
        for i, e in enumerate(target.elts):
            self.scope.names[e.id] = Items(made.pairs, i)
        return bool(made.pairs)

    def do_assert(self, s):
        before, self.printing = self.printing, True
        self.expression(s.test)
        self.printing = before
        self.narrow(s.test)

    def do_try(self, s):
        n = self.number()
        catching, self.catching = self.catching, self.catching or any(self.catches(h) for h in s.handlers)
        self.arm("t", n, 0, s.body)
        self.catching = catching
        seen, self.scope.rebound = self.scope.rebound, set()
        for i, h in enumerate(s.handlers):
            if h.type is not None:
                self.expression(h.type)
            self.arm("t", n, i + 1, h.body)
        rebound, self.scope.rebound = self.scope.rebound, seen
        for name in rebound:  # whether the handler ran is not known
            self.scope.bind(name, UNKNOWN, True)
        self.arm("t", n, 0, s.orelse)
        before, self.cleaning = self.cleaning, True
        self.block(s.finalbody)
        self.cleaning = before

    def catches(self, handler):
        """Whether a handler ends what a wrong value raises."""
        if handler.type is None:
            return not self.leaves(handler.body).endswith("!!")
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        return any(self.dotted(k) in WRONG_VALUE for k in kinds) and self.leaves(handler.body) != "!!"

    def do_with(self, s):
        for item in s.items:
            self.expression(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, item.context_expr)
        made = [item.context_expr for item in s.items if isinstance(item.context_expr, ast.Call)]
        before = self.catching
        self.catching = before or any(getattr(c.func, "attr", getattr(c.func, "id", "")) in CATCHERS and any(self.dotted(k) in WRONG_VALUE for a in c.args for k in (a.elts if isinstance(a, ast.Tuple) else [a])) for c in made)
        self.block(s.body)
        self.catching = before

    def do_match(self, s):
        self.expression(s.subject)
        n = self.number()
        for i, c in enumerate(s.cases):
            self.arm("i", n, i, c.body)

    def do_import(self, s):
        for a in s.names:
            root = a.name.split(".")[0]
            self.scope.names[a.asname or root] = Alias(a.name if a.asname else root)
            if root in LIBRARIES:
                self.say("import", s, a.name, **({"how": "as"} if a.asname else {}))
            self.say_unknown(s, root)

    def say_unknown(self, s, root):
        """Says that a package is imported about which nothing is known, once at the top of a file: it may start the driver."""
        if root in LIBRARIES or root in STARTLESS or self.said_unknown or "VISIBLE_DEVICES" not in self.hints:
            return
        if not self.inside and not self.branch:
            self.said_unknown = True
        self.say("import", s, "?")

    said_unknown = False

    def do_from(self, s):
        self.say_unknown(s, "" if s.level or s.module is None else s.module.split(".")[0])
        if s.level or s.module is None:
            for a in s.names:
                self.scope.names.pop(a.asname or a.name, None)
            return
        if s.module.split(".")[0] in LIBRARIES:
            self.say("import", s, s.module, how="as")
        if any(a.name == "*" for a in s.names) and s.module.split(".")[0] not in LIBRARIES | STARTLESS:
            self.scope.forget()
        for a in s.names:
            self.scope.names[a.asname or a.name] = Alias(s.module + "." + a.name)
            if a.name == "*" and s.module == "os":
                self.scope.names["environ"] = Alias("os.environ")
                self.scope.names["putenv"] = Alias("os.putenv")

    def do_function(self, s):
        marks = list(self.marks) if self.owner_here else []
        for d in s.decorator_list:
            self.expression(d)
        marks += self.marked(s.decorator_list)
        for d in s.args.defaults + [d for d in s.args.kw_defaults if d is not None]:
            self.expression(d)
        if self.inside and not self.owner_here:
            name = self.inside + "." + s.name
            self.scope.names[s.name] = Alias(name)
        else:
            name = self.owner + "." + s.name if self.owner else s.name
            if not self.owner:
                self.scope.names.pop(s.name, None)
        self.functions.add(name)
        place = []
        self.out.append(place)
        self.later.append((s, name, self.owner, self.scope, marks, place, self.cell, self.ends))

    owner_here = False
    marks = ()

    def do_class(self, s):
        for x in s.decorator_list + s.bases + [k.value for k in s.keywords]:
            self.expression(x)
        self.classes[s.name] = set(f.name for f in s.body if isinstance(f, FUNCTIONS))
        before, here, scope, marks = self.owner, self.owner_here, self.scope, self.marks
        self.owner, self.owner_here, self.scope = s.name, True, Scope(self.scope)
        self.marks = self.marked(s.decorator_list + s.bases)
        self.block(s.body)
        self.owner, self.owner_here, self.scope, self.marks = before, here, scope, marks

    def marked(self, nodes):
        """What stands above a function or class, and what a class is made of, as arguments named @."""
        named = [(d, self.dotted(d.func if isinstance(d, ast.Call) else d)) for d in nodes]
        return [{"name": "@", "ref": name, "at": self.at(d)} for d, name in named if name]

    def body(self, s, name, owner, scope, marks, place, cell, ends):
        self.out, self.inside, self.owner, self.owner_here = place, name, owner, False
        self.scope, self.branch, self.cell, self.ends = Scope(scope), "", cell, ends
        self.idle = False
        self.cleaning, self.borrowed = False, any("fixture" in m["ref"] or "contextmanager" in m["ref"] for m in marks)
        a = s.args
        by_option = any(m["ref"] in ("click.option", "click.argument") for m in marks)
        params = getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs
        for p in params + [x for x in (a.vararg, a.kwarg) if x is not None]:
            kind = self.annotated(getattr(p, "annotation", None)) or by_option and self.options.get(p.arg)
            self.scope.names[p.arg] = Computed(p.arg, kind) if kind else UNKNOWN
        for p, default in zip(reversed(a.args), reversed(a.defaults)):
            if isinstance(default, ast.List):
                self.scope.names[p.arg] = Computed(p.arg, "list")
        args = list(marks)
        args += [{"name": p.arg} for p in params if p.arg not in ("self", "cls")]
        self.say("define", s, name, args=args)["at"] = [cell, s.lineno, s.col_offset, s.lineno, s.col_offset]
        self.block(s.body)
        if self.engines and any(self.is_dropped(s, x) for x in s.body):
            self.say("call", s, "del", args=[])

    def is_dropped(self, function, statement):
        """Whether a statement makes an engine that ends with its function: only methods of it are called."""
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and self.dotted(statement.value.func) == "vllm.LLM"):
            return False
        name = statement.targets[0]
        if not isinstance(name, ast.Name):
            return False
        uses = [x for x in ast.walk(function) if isinstance(x, ast.Name) and x.id == name.id]
        methods = [x for x in ast.walk(function) if isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == name.id]
        return len(uses) == len(methods) + 1 and not any(isinstance(x, ast.Global) and name.id in x.names for x in ast.walk(function))

    def annotated(self, note):
        """The type that an annotation of a parameter says, where it is none of a text."""
        note = note.value if isinstance(note, ast.Subscript) else note
        name = note.attr if isinstance(note, ast.Attribute) else getattr(note, "id", "")
        return name.lower() if name in ("int", "list", "List", "tuple", "Tuple") else "list" if name == "Sequence" else ""

    def do_delete(self, s):
        for t in s.targets:
            if isinstance(t, ast.Subscript) and self.dotted(t.value) in ENVIRON:
                self.unset(s, self.key(t), "del os.environ[]")
            elif isinstance(t, ast.Subscript):
                self.change(t.value, self.key(t), None)
            elif isinstance(t, ast.Name):
                self.say("call", s, "del", args=[{"name": "", "ref": t.id}])
                self.scope.names.pop(t.id, None)

    def do_global(self, s):
        for name in s.names:
            self.module.names.setdefault(name, UNKNOWN)
            self.module.often.add(name)

    def do_assign(self, s):
        if s.value is None:
            return
        self.expression(s.value)
        for t in s.targets if isinstance(s, ast.Assign) else [s.target]:
            self.assign(t, s.value)

    def do_change(self, s):
        self.expression(s.value)
        if self.dotted(s.target) in ENVIRON and isinstance(s.op, ast.BitOr):
            self.update(s, [s.value], [], "os.environ |=")
        elif isinstance(s.target, ast.Subscript) and self.dotted(s.target.value) in ENVIRON:
            step = self.set(s, self.key(s.target), s.value, "os.environ[]")
            if self.out and self.out[-1].__class__ is dict and self.out[-1].get("at") == self.at(s):
                self.out[-1]["value"]["text"] = None
            return step
        else:
            name = self.path(s.target)
            known = self.scope.find(name) if name else None
            if isinstance(known, Mapping) and isinstance(s.op, ast.BitOr):
                more = self.mapping(s.value)
                if more is not None:
                    known.pairs, known.alone = known.pairs + more.pairs, known.alone and more.alone
                else:
                    known.alone = False
            else:
                self.forget(s.target)
