class Bindings(object):
    """Assignments, and what a name stands for after one."""

    def forget(self, target):
        if isinstance(target, (ast.Tuple, ast.List)):
            for e in target.elts:
                self.forget(e)
        elif isinstance(target, ast.Starred):
            self.forget(target.value)
        else:
            name = self.path(target)
            if name:
                self.scope.bind(name, UNKNOWN, True)

    def path(self, target):
        if isinstance(target, ast.Name):
            return target.id
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and not isinstance(self.scope.find(target.value.id), Alias):
            return target.value.id + "." + target.attr
        return None

    def assign(self, target, value):
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for t, v in zip(target.elts, value.elts):
                    self.assign(t, v)
            else:
                self.forget(target)
            return
        if isinstance(target, ast.Subscript):
            self.expression(target.value)
            if self.dotted(target.value) in ENVIRON:
                return self.put(target, value)
            return self.change(target.value, self.key(target), value)
        if isinstance(target, ast.Attribute):
            name = self.dotted(target)
            if name and name.split(".")[0] in LIBRARIES and (not name.startswith("torch.backends.") or name == "torch.backends.cudnn.enabled"):
                self.say("override", target, name, value=self.value(value))
                return
        name = self.path(target)
        if name in self.things and constant(value) == "None":
            self.say("call", target, "del", args=[])
        if name:
            if self.hints & DEVICE_COUNTS and self.counts(value):
                self.counters.add(name)
            if isinstance(value, ast.Call) and (self.dotted(value.func) or "").split(".")[0] in LIBRARIES:
                self.things.add(name)
            what = self.meaning(value)
            outer = self.branch.count("/") - self.branch.count("t")
            self.scope.bind(name, what, outer == 0 or isinstance(what, Mapping) and outer == self.branch.count("l"))

    def put(self, target, value):
        """os.environ[...] = value"""
        inner = target.slice.value if target.slice.__class__.__name__ == "Index" else target.slice
        known = self.scope.find(inner.id) if isinstance(inner, ast.Name) else None
        if isinstance(known, Items) and known.value == 0:
            second = self.scope.find(value.id) if isinstance(value, ast.Name) else None
            if isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.args[0], ast.Name):
                second = self.scope.find(value.args[0].id)
            for k, v in known.pairs:
                self.set(target, k, v if isinstance(second, Items) else value, "os.environ[]")
                if isinstance(value, ast.Call) and self.out and self.out[-1].__class__ is dict:
                    self.out[-1].get("value", {}).pop("type", None)  # str(v) is a text
            return
        if not isinstance(value, ast.IfExp):
            return self.set(target, self.key(target), value, "os.environ[]")
        kept = self.narrow(value.test)
        before, arm = self.branch, "%si%d" % (self.branch, self.number())
        for i, v in enumerate((value.body, value.orelse)):
            self.branch = "%s.%d/" % (arm, i)
            self.set(target, self.key(target), v, "os.environ[]")
        self.branch = before
        self.widen(kept)

    def change(self, where, key, value):
        """name[key] = value: of a dict that may become the environment of a child."""
        name = self.path(where)
        known = self.scope.find(name) if name else None
        self.mutate(where)
        if isinstance(known, Mapping):
            known.alone = known.alone and key is not None
        if isinstance(known, Mapping) and key is not None:
            known.pairs = [p for p in known.pairs if p[0] != key] + ([(key, value)] if value is not None else [])

    def mutate(self, where):
        """A list is not what it was written as any more."""
        name, scope = self.path(where), self.scope
        while name and scope is not None:
            if isinstance(scope.names.get(name), Words):
                scope.names[name] = Computed(name, "list")
            scope = scope.outer

    def meaning(self, node):
        """What a name stands for after it is given this value."""
        text = self.text(node)
        if text is not None:
            return Known(text, self.kind(node))
        dotted = self.dotted(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) else None
        if dotted and dotted[0] != "." and (dotted in ENVIRON or dotted in self.classes or isinstance(node, ast.Call) or dotted.split(".")[0] in LIBRARIES or dotted.startswith(("os.", "subprocess."))):
            return Alias(dotted)
        made = self.mapping(node)
        if made is not None:
            return made
        if isinstance(node, (ast.List, ast.Tuple)):
            return Words(node)
        some = self.choices(node)
        if some:
            return Choice(some)
        origin, kind = self.origin(node), self.kind(node)
        shape = self.shape(node) if node.__class__.__name__ in ("JoinedStr", "BinOp", "Call") and "VISIBLE_DEVICES" in self.hints else "{}"
        return Computed(origin, kind, shape) if origin or kind or shape.strip("{}") else UNKNOWN

    def mapping(self, node):
        """The pairs of a dict that is written down, on top of the process's own environment or of nothing."""
        if isinstance(node, ast.Name) or isinstance(node, ast.Attribute) and self.path(node):
            if self.dotted(node) in ENVIRON:
                return Mapping([])
            known = self.scope.find(self.path(node))
            return Mapping(list(known.pairs), known.alone) if isinstance(known, Mapping) else None
        if isinstance(node, ast.Attribute):
            return Mapping([]) if self.dotted(node) in ENVIRON else None
        if isinstance(node, ast.Dict):
            pairs, alone = [], True
            for k, v in zip(node.keys, node.values):
                inner = self.mapping(v) if k is None else None
                if inner is not None:
                    pairs += inner.pairs
                    alone = alone and inner.alone
                elif k is not None and self.text(k) is not None:
                    pairs.append((self.text(k), v))
                else:
                    alone = False
            return Mapping(pairs, alone)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            left, right = self.mapping(node.left), self.mapping(node.right)
            return Mapping(left.pairs + right.pairs, left.alone and right.alone) if left and right else Mapping((left or right).pairs) if left or right else None
        if isinstance(node, ast.Call):
            name = self.dotted(node.func)
            if name in ("os.environ.copy", "os.environ.items"):
                return Mapping([])
            if name in ("dict", "copy.copy", "copy.deepcopy"):
                start = self.mapping(node.args[0]) if node.args else Mapping([], True)
                start = start or Mapping([])
                pairs = start.pairs + [(k.arg, k.value) for k in node.keywords if k.arg]
                return Mapping(pairs, start.alone and len(pairs) == len(start.pairs) + len(node.keywords))
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("copy", "items") and self.path(node.func.value):
                return self.mapping(node.func.value)
        return None
