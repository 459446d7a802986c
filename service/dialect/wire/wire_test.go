package wire_test

import (
	"testing"

	"tessera.dev/service/dialect/wire"
)

func TestBytesOfReplies(t *testing.T) {
	for found, wanted := range map[string]string{
		string(wire.JSON(map[string]any{"b": "<&>", "a": "\n\u2028"})): `{"a":"\n\u2028","b":"<&>"}`,
		string(wire.Line([]int{1})):                                    "[1]\n",
		string(wire.Event("x.y", struct{}{})):                          "event: x.y\ndata: {}\n\n",
		string(wire.Comment("ping")):                                   ": ping\n\n",
		string(wire.Compact([]byte("{ \"a\" : [ 1, \"b c\" ]\n}"))):    `{"a":[1,"b c"]}`,
	} {
		if found != wanted {
			t.Errorf("%q; wanted %q", found, wanted)
		}
	}
}
