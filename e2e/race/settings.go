package race

import (
	"errors"
	"fmt"
	"strconv"
)

// Settings of a race.
type Settings struct {
	// Rounds of each scenario.
	Rounds int
	// Replicas of classbind.
	Replicas int
	// APIServers on one etcd.
	APIServers int
	// Writers of a round, each of a class of its own.
	Writers int
}

// SettingsFrom the environment, with a default for what it does not set.
func SettingsFrom(getenv func(string) string) (Settings, error) {
	s := Settings{Rounds: 2000, Replicas: 3, APIServers: 2, Writers: 16}
	var errs []error
	for _, v := range []struct {
		name  string
		value *int
		least int
	}{
		{"ROUNDS", &s.Rounds, 1},
		{"REPLICAS", &s.Replicas, 1},
		{"APISERVERS", &s.APIServers, 1},
		{"WRITERS", &s.Writers, 2},
	} {
		text := getenv(v.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < v.least {
			errs = append(errs, fmt.Errorf("%s=%q: must be a whole number, at least %d", v.name, text, v.least))
		}
		*v.value = n
	}
	return s, errors.Join(errs...)
}
