package race

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	from := func(env map[string]string) (Settings, error) {
		return SettingsFrom(func(name string) string { return env[name] })
	}
	s, err := from(nil)
	require.NoError(t, err)
	assert.Equal(t, Settings{Rounds: 2000, Replicas: 3, APIServers: 2, Writers: 16}, s)
	s, err = from(map[string]string{"ROUNDS": "1", "REPLICAS": "2", "APISERVERS": "3", "WRITERS": "4"})
	require.NoError(t, err)
	assert.Equal(t, Settings{Rounds: 1, Replicas: 2, APIServers: 3, Writers: 4}, s)
	_, err = from(map[string]string{"ROUNDS": "many", "REPLICAS": "0", "APISERVERS": "1.5", "WRITERS": "1"})
	require.EqualError(t, err, `ROUNDS="many": must be a whole number, at least 1
REPLICAS="0": must be a whole number, at least 1
APISERVERS="1.5": must be a whole number, at least 1
WRITERS="1": must be a whole number, at least 2`, "We should say all that is wrong.")
}
