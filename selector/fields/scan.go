package fields

// scan goes through valid JSON and reads little of it: it looks only for the end of a
// value. Package jsontext would prove once more that all of it is valid, which takes
// several times as long. For invalid JSON, the results mean nothing, but scan ends.
type scan struct {
	json []byte
	at   int
}

// next skips space, and returns the byte that follows, 0 at the end.
func (s *scan) next() byte {
	for ; s.at < len(s.json); s.at++ {
		switch c := s.json[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// begin an object or an array, and report whether it has anything in it.
func (s *scan) begin() bool {
	s.at++
	return s.notClosed()
}

// more reports whether an object or an array has another element, after one was read.
func (s *scan) more() bool {
	if s.next() == ',' {
		s.at++
		return true
	}
	return s.notClosed()
}

func (s *scan) notClosed() bool {
	switch s.next() {
	case '}', ']':
		s.at++
		return false
	case 0:
		return false
	}
	return true
}

// fieldName reads a name and its colon. The name has its quotes, and maybe escapes.
func (s *scan) fieldName() (quoted []byte, isEscaped bool) {
	s.next()
	begin := s.at
	isEscaped = s.text()
	quoted = s.json[begin:s.at]
	if s.next() == ':' {
		s.at++
	}
	if len(quoted) < 2 {
		return []byte(`""`), false
	}
	return quoted, isEscaped
}

// text skips a string.
func (s *scan) text() (isEscaped bool) {
	json, at := s.json, s.at+1
	for at < len(json) && json[at] != '"' {
		if json[at] == '\\' {
			isEscaped = true
			at++
		}
		at++
	}
	s.at = min(at+1, len(json))
	return isEscaped
}

// value skips a value, and returns it.
func (s *scan) value() []byte {
	kind := s.next()
	begin := s.at
	switch kind {
	case '"':
		s.text()
	case '{', '[':
		s.nested()
	default:
		s.literal()
	}
	return s.json[begin:s.at]
}

// nested skips an object or an array.
func (s *scan) nested() {
	for depth := 0; s.at < len(s.json); {
		switch s.json[s.at] {
		case '"':
			s.text()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
		if depth == 0 {
			return
		}
	}
}

// literal skips a number, true, false or null.
func (s *scan) literal() {
	for ; s.at < len(s.json); s.at++ {
		switch s.json[s.at] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
	}
}
