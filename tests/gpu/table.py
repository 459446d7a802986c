"""The table that `./dev gpu` ends with: what is asked, what was measured, and whether that is enough."""


class Table:
    def __init__(self):
        self.rows = {}  # key -> [what, asked, measured, verdict], in the order in which they are declared
        self.sections = {}  # section -> its keys

    def expect(self, section, rows):
        """Declares rows (key, what, asked) before they are measured: what never is stays in the table and is no pass."""
        self.sections.setdefault(section, []).extend(key for key, _, _ in rows)
        for key, what, asked in rows:
            self.rows[key] = [what, asked, None, None]

    def set(self, key, measured, passed):
        self.rows[key][2:] = [measured, "pass" if passed else "SHORT"]

    def miss(self, key, why):
        """Tried, and not measured."""
        self.rows[key][2:] = ["not measured: " + " ".join(str(why).split())[:120], "NOT"]

    def ratio(self, key, value, least, text):
        """A share that is to be at least so much."""
        self.set(key, text, value >= least)

    def give_up(self, section, why):
        """What the section has not measured by now."""
        for key in self.sections.get(section, []):
            if self.rows[key][2] is None:
                self.miss(key, why)

    def counts(self):
        verdicts = [row[3] for row in self.rows.values()]
        return verdicts.count("pass"), verdicts.count("SHORT"), len(verdicts) - verdicts.count("pass") - verdicts.count("SHORT")

    def text(self):
        for section in self.sections:
            self.give_up(section, "not reached")
        width = [max(len(row[i]) for row in self.rows.values()) for i in (0, 1)]
        lines = [f"{what:<{width[0]}} {asked:<{width[1]}} {verdict:<5} {measured}"
                 for what, asked, measured, verdict in self.rows.values()]
        passed, short, missing = self.counts()
        lines.append(f"{passed} passed, {short} fall short, {missing} not measured")
        return "\n".join(lines)
