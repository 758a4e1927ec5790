package selector

// scan goes through JSON that is known to be valid, of which little is to be read: it
// looks for the end of a value, and at nothing in it. Package jsontext would prove
// once more that all of it is valid, which takes several times as long. What is not
// valid has scan return something, in the end.
type scan struct {
	json []byte
	at   int
}

// next is what a value begins with, 0 at the end. It passes over the space before it.
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

// begin an object or an array, and say whether it has anything in it.
func (s *scan) begin() bool {
	s.at++
	return s.notClosed()
}

// more says whether anything comes after what was read of an object or an array.
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

// fieldName reads one, and the colon after it. It has its quotes, and maybe escapes.
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

// text passes over a string.
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

// value passes over one, and returns it.
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

// nested passes over an object or an array.
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

// literal passes over a number, true, false or null.
func (s *scan) literal() {
	for ; s.at < len(s.json); s.at++ {
		switch s.json[s.at] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
	}
}
