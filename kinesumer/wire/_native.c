/* Read CBOR: a page of records, or any body as an object.
 *
 * Records stay in the page. An index says where the parts of each are, and from it a
 * record becomes an object, or all of them become the columns of Arrow, when somebody
 * asks for them. To make and free one object after the other takes less time than to
 * keep ten thousand of them, because they use the same memory.
 *
 * The input is RFC 8949, as AWS writes it: an integer with tag 1 is a time, in
 * milliseconds since 1970. What AWS does not write raises ValueError: other tags,
 * floating-point numbers, strings in parts, and names that come twice. kinesumer then
 * reads the same page in JSON.
 *
 * The module's only state is a type. What its functions make is theirs until they return
 * it, so they need neither a lock nor the GIL. Should another thread write to a bytearray
 * while it is read, the values are undefined, but each length is still compared with the
 * end: a buffer that is in use keeps its size. An iterator belongs to one thread: two
 * threads may get the same record from it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define MAX_DEPTH 12 /* an answer of Kinesis has half as many levels */
/* A request of PutRecords has 500 records with 4 items each. Others only take memory. */
#define MAX_ITEMS 10000
#define INDEFINITE 31
#define BREAK 0xff
#define TIME_TAG 1
#define END_MILLISECONDS 253402300800000 /* the year 10000 */

enum { NATURAL, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };
enum { FALSE = 0xf4, TRUE, NIL };

typedef struct {
    const uint8_t *next, *end; /* the input that is not read yet */
    int items;                 /* how many became objects, apart from records */
} Reader;

typedef struct {
    int major;
    int indefinite;  /* whether a break ends the item */
    uint64_t number; /* its length, if it has one */
} Head;

typedef struct {
    const uint8_t *text;
    Py_ssize_t size;
} Slice;

static int fail(const char *reason) {
    PyErr_SetString(PyExc_ValueError, reason);
    return -1;
}

/* --- items -------------------------------------------------------------------------- */

/* Read a number of 1, 2, 4 or 8 bytes, as the lower bits of its head tell. */
static int read_number(Reader *r, int low, uint64_t *number) {
    if (low > 27) {
        return fail("a reserved length");
    }
    int size = 1 << (low - 24);
    if (r->end - r->next < size) {
        return fail("the end is missing");
    }
    *number = 0;
    for (int i = 0; i < size; i++) {
        *number = *number << 8 | *r->next++;
    }
    return 0;
}

static inline int read_head(Reader *r, Head *head) {
    if (r->next == r->end) {
        return fail("the end is missing");
    }
    int low = *r->next & 31;
    head->major = *r->next++ >> 5;
    head->indefinite = low == INDEFINITE;
    head->number = low < 24 ? (uint64_t)low : 0;
    return low < 24 || head->indefinite ? 0 : read_number(r, low, &head->number);
}

/* Take the contents of a string whose head was read. */
static int take(Reader *r, const Head *head, Slice *found) {
    if (head->indefinite) {
        return fail("a string in parts");
    }
    if ((uint64_t)(r->end - r->next) < head->number) {
        return fail("the end is missing");
    }
    found->text = r->next;
    found->size = (Py_ssize_t)head->number;
    r->next += found->size;
    return 0;
}

/* Read a string, which must have this major type. */
static int read_slice(Reader *r, int major, Slice *found) {
    Head head;
    if (read_head(r, &head) < 0) {
        return -1;
    }
    return head.major == major ? take(r, &head, found) : fail("another type");
}

static int is_ascii(const Slice *slice) {
    uint64_t word, all = 0;
    Py_ssize_t at = 0;
    for (; slice->size - at >= 8; at += 8) {
        memcpy(&word, slice->text + at, 8);
        all |= word;
    }
    for (; at < slice->size; at++) {
        all |= slice->text[at];
    }
    return !(all & 0x8080808080808080);
}

/* Return a text. Most are ASCII, which Python's decoder takes longer to copy. */
static PyObject *text_of(const Slice *slice) {
    if (!is_ascii(slice)) {
        return PyUnicode_DecodeUTF8((const char *)slice->text, slice->size, "strict");
    }
    PyObject *text = PyUnicode_New(slice->size, 127);
    if (text != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(text), slice->text, slice->size);
    }
    return text;
}

/* Check that a text is UTF-8. */
static int check_utf8(const Slice *slice) {
    if (is_ascii(slice)) {
        return 0;
    }
    PyObject *decoded = text_of(slice);
    Py_XDECREF(decoded);
    return decoded == NULL ? -1 : 0;
}

/* Return whether an array or a map ends after ``seen`` elements. Skip its break. */
static int is_end(Reader *r, const Head *head, uint64_t seen) {
    if (!head->indefinite) {
        return seen == head->number;
    }
    if (r->next < r->end && *r->next == BREAK) {
        r->next++;
        return 1;
    }
    return 0;
}

/* Move behind the next item, which is not checked further. */
static int skip(Reader *r, int depth) {
    Head head;
    Slice slice;
    if (read_head(r, &head) < 0) {
        return -1;
    }
    if (head.major == BYTES || head.major == TEXT) {
        return take(r, &head, &slice);
    }
    if (head.major < BYTES || head.major == SIMPLE) {
        return 0;
    }
    if (depth == MAX_DEPTH) {
        return fail("too many levels");
    }
    if (head.major == TAG) {
        return skip(r, depth + 1);
    }
    for (uint64_t seen = 0; !is_end(r, &head, seen); seen++) {
        if ((head.major == MAP && skip(r, depth + 1)) || skip(r, depth + 1)) {
            return -1;
        }
    }
    return 0;
}

/* --- records ------------------------------------------------------------------------ */

enum { SEQUENCE_NUMBER, PARTITION_KEY, DATA, HASH_KEY, STRINGS };

typedef struct {
    Slice strings[STRINGS]; /* the text of one that is missing is NULL */
    int64_t milliseconds;
} Record;

static int is_name(const Slice *key, const char *name) {
    return (size_t)key->size == strlen(name) && !memcmp(key->text, name, key->size);
}

static int read_arrival(Reader *r, int64_t *milliseconds) {
    Head head;
    if (read_head(r, &head) < 0) {
        return -1;
    }
    if (head.major != TAG || head.number != TIME_TAG || head.indefinite) {
        return fail("an unusual time");
    }
    if (read_head(r, &head) < 0) {
        return -1;
    }
    if (head.major != NATURAL || head.indefinite || head.number >= END_MILLISECONDS) {
        return fail("an unusual time");
    }
    *milliseconds = (int64_t)head.number;
    return 0;
}

/* Read a record, which must have each field once. Only the partition key may be missing,
 * because a stream that distributes records by AUTO needs none. */
static int read_record(Reader *r, Record *found) {
    Head head;
    int fields = 0;
    found->strings[PARTITION_KEY] = found->strings[HASH_KEY] = (Slice){NULL, 0};
    if (read_head(r, &head) < 0) {
        return -1;
    }
    if (head.major != MAP) {
        return fail("an unusual record");
    }
    for (uint64_t seen = 0; !is_end(r, &head, seen); seen++) {
        Slice key;
        int field, failed;
        if (read_slice(r, TEXT, &key) < 0) {
            return -1;
        }
        if (is_name(&key, "SequenceNumber")) {
            field = 1;
            failed = read_slice(r, TEXT, &found->strings[SEQUENCE_NUMBER]);
        } else if (is_name(&key, "PartitionKey")) {
            field = 2;
            failed = read_slice(r, TEXT, &found->strings[PARTITION_KEY]);
        } else if (is_name(&key, "Data")) {
            field = 4;
            failed = read_slice(r, BYTES, &found->strings[DATA]);
        } else if (is_name(&key, "ApproximateArrivalTimestamp")) {
            field = 8;
            failed = read_arrival(r, &found->milliseconds);
        } else { /* such as EncryptionType */
            field = 0;
            failed = skip(r, 2);
        }
        if (failed) {
            return -1;
        }
        if (fields & field) {
            return fail("a field that comes twice");
        }
        fields |= field;
    }
    return (fields | 2) == 15 ? 0 : fail("a missing field");
}

/* --- other items -------------------------------------------------------------------- */

static PyObject *read_object(Reader *r, int depth);

static PyObject *number_of(const Head *head) {
    if (head->indefinite || (head->major == NEGATIVE && head->number > INT64_MAX)) {
        fail("an unusual number");
        return NULL;
    }
    return head->major == NATURAL ? PyLong_FromUnsignedLongLong(head->number)
                                  : PyLong_FromLongLong(-1 - (int64_t)head->number);
}

static PyObject *read_list(Reader *r, const Head *head, int depth) {
    PyObject *list = PyList_New(0);
    for (uint64_t seen = 0; list != NULL && !is_end(r, head, seen); seen++) {
        PyObject *item = read_object(r, depth + 1);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

/* Read a field's value into a dictionary. */
static int read_field(Reader *r, const Slice *key, PyObject *fields, int depth) {
    Py_ssize_t before = PyDict_Size(fields);
    PyObject *name = text_of(key);
    PyObject *value = name == NULL ? NULL : read_object(r, depth);
    int failed = value == NULL ? -1 : PyDict_SetItem(fields, name, value);
    Py_XDECREF(name);
    Py_XDECREF(value);
    if (!failed && PyDict_Size(fields) == before) {
        return fail("a name that comes twice");
    }
    return failed;
}

static PyObject *read_dict(Reader *r, const Head *head, int depth) {
    PyObject *fields = PyDict_New();
    for (uint64_t seen = 0; fields != NULL && !is_end(r, head, seen); seen++) {
        Slice key;
        if (read_slice(r, TEXT, &key) < 0 || read_field(r, &key, fields, depth + 1)) {
            Py_CLEAR(fields);
        }
    }
    return fields;
}

/* Return the next item as an object. A time becomes seconds. */
static PyObject *read_object(Reader *r, int depth) {
    const uint8_t *begin = r->next;
    Head head;
    Slice slice;
    int64_t milliseconds;
    if (read_head(r, &head) < 0) {
        return NULL;
    }
    if (depth > MAX_DEPTH || ++r->items > MAX_ITEMS) {
        fail("too many items or levels");
        return NULL;
    }
    switch (head.major) {
    case NATURAL:
    case NEGATIVE:
        return number_of(&head);
    case BYTES:
    case TEXT:
        if (take(r, &head, &slice) < 0) {
            return NULL;
        }
        return head.major == TEXT
                   ? text_of(&slice)
                   : PyBytes_FromStringAndSize((const char *)slice.text, slice.size);
    case ARRAY:
        return read_list(r, &head, depth);
    case MAP:
        return read_dict(r, &head, depth);
    case TAG:
        r->next = begin;
        if (read_arrival(r, &milliseconds) < 0) {
            return NULL;
        }
        return PyFloat_FromDouble((double)milliseconds / 1000.0);
    }
    switch (*begin) {
    case FALSE:
        Py_RETURN_FALSE;
    case TRUE:
        Py_RETURN_TRUE;
    case NIL:
        Py_RETURN_NONE;
    }
    fail("an unusual value");
    return NULL;
}

/* Return the fields of an answer, apart from its records. ``read`` gets the head of their
 * array, and reads them. */
static PyObject *read_answer(Reader *r, int (*read)(Reader *, const Head *, void *),
                             void *into) {
    Head head, array;
    Slice key;
    int failed = 0, has_records = 0;
    if (read_head(r, &head) < 0) {
        return NULL;
    }
    if (head.major != MAP) {
        fail("no map");
        return NULL;
    }
    PyObject *fields = PyDict_New();
    if (fields == NULL) {
        return NULL;
    }
    for (uint64_t seen = 0; !failed && !is_end(r, &head, seen); seen++) {
        if (read_slice(r, TEXT, &key) < 0) {
            failed = -1;
        } else if (!is_name(&key, "Records")) {
            failed = read_field(r, &key, fields, 1);
        } else if (has_records++) {
            failed = fail("a name that comes twice");
        } else if (read_head(r, &array) < 0) {
            failed = -1;
        } else {
            failed = array.major == ARRAY ? read(r, &array, into) : fail("no array");
        }
    }
    if (!failed && !(has_records && r->next == r->end)) {
        failed = fail(has_records ? "bytes after the end" : "no records");
    }
    if (failed) {
        Py_CLEAR(fields);
    }
    return fields;
}

static PyObject *decode(PyObject *self, PyObject *body) {
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(body, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Reader r = {view.buf, (const uint8_t *)view.buf + view.len, 0};
    PyObject *item = read_object(&r, 0);
    if (item != NULL && r.next != r.end) {
        fail("bytes after the end");
        Py_CLEAR(item);
    }
    PyBuffer_Release(&view);
    return item;
}

/* --- pages -------------------------------------------------------------------------- */

#define MISSING UINT32_MAX /* the size of a string that a record doesn't have */
#define WHOLE -1           /* the sub-sequence number of a record of no aggregate */

/* Where the parts of a record are in the body of its page. */
typedef struct {
    uint32_t at[STRINGS], size[STRINGS];
    int64_t micros, sub_number;
} Entry;

/* Some records of a page. */
typedef struct {
    Py_buffer body, entries;
    Py_ssize_t first, stop;
} Records;

static void release(Records *records) {
    PyBuffer_Release(&records->entries);
    PyBuffer_Release(&records->body);
}

/* Open the records from ``first`` to ``stop``. */
static int open_records(Records *records, PyObject *body, PyObject *index,
                        PyObject *first, PyObject *stop) {
    if (PyObject_GetBuffer(body, &records->body, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    if (PyObject_GetBuffer(index, &records->entries, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&records->body);
        return -1;
    }
    records->first = PyLong_AsSsize_t(first);
    records->stop = PyLong_AsSsize_t(stop);
    Py_ssize_t count = records->entries.len / (Py_ssize_t)sizeof(Entry);
    if (!PyErr_Occurred() &&
        (records->first < 0 || records->first > records->stop || records->stop > count)) {
        PyErr_SetString(PyExc_IndexError, "no such records");
    }
    if (PyErr_Occurred()) {
        release(records);
        return -1;
    }
    return 0;
}

static const Entry *entry_at(const Records *records, Py_ssize_t index) {
    return (const Entry *)records->entries.buf + index;
}

/* Find a part of a record. One that is missing has the text NULL. */
static int find(const Records *records, const Entry *entry, int part, Slice *found) {
    *found = (Slice){NULL, 0};
    if (entry->size[part] == MISSING) {
        return 0;
    }
    if ((uint64_t)entry->at[part] + entry->size[part] > (uint64_t)records->body.len) {
        return fail("an index of another page");
    }
    found->text = (const uint8_t *)records->body.buf + entry->at[part];
    found->size = entry->size[part];
    return 0;
}

/* Bytes that grow. Their capacity is the size of the Python object. */
typedef struct {
    PyObject *bytes; /* NULL after an error */
    Py_ssize_t size;
} Buffer;

static int append(Buffer *buffer, const void *from, Py_ssize_t size) {
    Py_ssize_t filled = buffer->size, capacity = PyBytes_GET_SIZE(buffer->bytes);
    if (capacity - filled < size) {
        Py_ssize_t greater = 2 * capacity > filled + size ? 2 * capacity : filled + size;
        if (_PyBytes_Resize(&buffer->bytes, greater) < 0) {
            return -1;
        }
    }
    if (size) {
        memcpy(PyBytes_AS_STRING(buffer->bytes) + filled, from, size);
    }
    buffer->size += size;
    return 0;
}

/* Return the bytes, cut to their size, or NULL. */
static PyObject *cut(Buffer *buffer) {
    PyObject *bytes = NULL;
    if (buffer->bytes != NULL && _PyBytes_Resize(&buffer->bytes, buffer->size) == 0) {
        bytes = buffer->bytes;
        buffer->bytes = NULL;
    }
    return bytes;
}

/* Note where a part of a record is. */
static void place(Entry *entry, int part, const Slice *string, const uint8_t *body) {
    int is_missing = string->text == NULL;
    entry->at[part] = is_missing ? 0 : (uint32_t)(string->text - body);
    entry->size[part] = is_missing ? MISSING : (uint32_t)string->size;
}

static int begins_with(const Slice *string, const Slice *prefix) {
    return string->size >= prefix->size &&
           !memcmp(string->text, prefix->text, prefix->size);
}

typedef struct {
    Buffer entries;
    const uint8_t *body;
    Slice prefix;
    int has_prefix; /* whether the data of at least one record begins with the prefix */
} Index;

static int append_entries(Reader *r, const Head *head, void *into) {
    Index *index = into;
    const Slice *prefix = &index->prefix;
    for (uint64_t seen = 0; !is_end(r, head, seen); seen++) {
        Record next;
        Entry entry;
        if (read_record(r, &next) < 0 || check_utf8(&next.strings[SEQUENCE_NUMBER]) ||
            check_utf8(&next.strings[PARTITION_KEY])) {
            return -1;
        }
        for (int i = 0; i < STRINGS; i++) {
            place(&entry, i, &next.strings[i], index->body);
        }
        entry.micros = next.milliseconds * 1000;
        entry.sub_number = WHOLE;
        index->has_prefix |= begins_with(&next.strings[DATA], prefix);
        if (append(&index->entries, &entry, sizeof(entry)) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *index_of(const Py_buffer *page, const Slice *prefix) {
    Reader r = {page->buf, (const uint8_t *)page->buf + page->len, 0};
    Index index = {.body = r.next, .prefix = *prefix};
    PyObject *fields = NULL, *entries = NULL, *result = NULL;
    index.entries.bytes = PyBytes_FromStringAndSize(NULL, 64 * sizeof(Entry));
    if (index.entries.bytes != NULL &&
        (fields = read_answer(&r, append_entries, &index)) != NULL &&
        (entries = cut(&index.entries)) != NULL) {
        result =
            Py_BuildValue("OOO", entries, index.has_prefix ? Py_True : Py_False, fields);
    }
    Py_XDECREF(index.entries.bytes);
    Py_XDECREF(entries);
    Py_XDECREF(fields);
    return result;
}

static int has_arguments(Py_ssize_t count, Py_ssize_t expected, const char *name) {
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments", name, expected);
    }
    return count == expected;
}

/* Call a reader of pages, with the body and a prefix. */
static PyObject *read_with(PyObject *const *given, Py_ssize_t count, const char *name,
                           PyObject *(*read)(const Py_buffer *, const Slice *)) {
    Py_buffer view, wanted;
    PyObject *result = NULL;
    if (!has_arguments(count, 2, name) ||
        PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(given[1], &wanted, PyBUF_SIMPLE) == 0) {
        if (view.len > INT32_MAX) {
            fail("a page of over 2 GiB");
        } else {
            Slice prefix = {wanted.buf, wanted.len};
            result = read(&view, &prefix);
        }
        PyBuffer_Release(&wanted);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *read_page(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    return read_with(given, count, "read_page", index_of);
}

/* --- JSON ---------------------------------------------------------------------------- */

/* Events of subscriptions, and pages of services that don't know CBOR. What is unusual
 * is refused, and then msgspec reads the page. */

#define EXACT_MICROS ((uint64_t)1 << 53) /* so many are exact as a float */
#define BASE64 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

typedef struct {
    Reader r;
    Buffer body; /* the strings of the records; it has the capacity of the input */
    Buffer entries;
    Slice prefix;
    int has_prefix;
    uint8_t values[256]; /* of the digits of Base64; 128 for other bytes */
} Json;

/* Return the next byte that is no space, or 0 at the end. */
static int peek(Reader *r) {
    while (r->next < r->end && (*r->next == ' ' || *r->next == '\n' ||
                                *r->next == '\r' || *r->next == '\t')) {
        r->next++;
    }
    return r->next < r->end ? *r->next : 0;
}

static int expect(Reader *r, int byte) {
    if (peek(r) != byte || r->next == r->end) {
        return fail("unusual JSON");
    }
    r->next++;
    return 0;
}

/* Read a string. Its escapes are left, and end it if they are of a quote. */
static int read_quoted(Reader *r, Slice *found) {
    if (expect(r, '"') < 0) {
        return -1;
    }
    const uint8_t *end = memchr(r->next, '"', r->end - r->next);
    if (end == NULL) {
        return fail("the end is missing");
    }
    *found = (Slice){r->next, end - r->next};
    r->next = end + 1;
    return 0;
}

/* Read a string, and return whether it has escapes, or -1. */
static int read_string(Reader *r, Slice *found) {
    if (read_quoted(r, found) < 0) {
        return -1;
    }
    if (memchr(found->text, '\\', found->size) == NULL) {
        return 0;
    }
    for (const uint8_t *at = found->text; at < r->end; at++) {
        if (*at == '"') {
            found->size = at - found->text;
            r->next = at + 1;
            return 1;
        }
        if (*at == '\\' && ++at == r->end) {
            break;
        }
    }
    return fail("the end is missing");
}

/* Move behind a value, which is not checked. */
static int skip_value(Reader *r) {
    int depth = 0;
    Slice text;
    for (;;) {
        int byte = peek(r);
        if (byte == '"') {
            if (read_string(r, &text) < 0) {
                return -1;
            }
            byte = 0; /* it ends the value, or does not matter */
        } else if (r->next == r->end) {
            return fail("the end is missing");
        } else if (depth == 0 && (byte == ',' || byte == '}' || byte == ']')) {
            return 0;
        } else {
            r->next++;
        }
        depth += (byte == '{' || byte == '[') - (byte == '}' || byte == ']');
    }
}

/* Return the number of four hexadecimal digits, or -1. */
static int read_code(const Slice *from, Py_ssize_t at) {
    int code = 0;
    for (Py_ssize_t i = at; i < at + 4; i++) {
        int byte = i < from->size ? from->text[i] : 0, low = byte | 32;
        if (byte >= '0' && byte <= '9') {
            code = 16 * code + byte - '0';
        } else if (low >= 'a' && low <= 'f') {
            code = 16 * code + low - 'a' + 10;
        } else {
            return fail("an unusual escape");
        }
    }
    return code;
}

static int append_utf8(Buffer *buffer, int code) {
    uint8_t bytes[4];
    int size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--) {
        bytes[i] = 0x80 | (code & 63);
        code >>= 6;
    }
    bytes[0] = (uint8_t)(size == 1 ? code : (0xf00 >> size & 0xff) | code);
    return append(buffer, bytes, size);
}

/* Append a string without its escapes. */
static int append_unescaped(Buffer *buffer, const Slice *from) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    Py_ssize_t at = 0;
    while (at < from->size) {
        const uint8_t *text = from->text + at;
        if (*text != '\\') {
            at++;
            if (append(buffer, text, 1) < 0) {
                return -1;
            }
            continue;
        }
        const char *known = at + 1 < from->size ? memchr(escapes, text[1], 8) : NULL;
        if (known != NULL) {
            at += 2;
            if (append(buffer, meant + (known - escapes), 1) < 0) {
                return -1;
            }
            continue;
        }
        if (at + 1 >= from->size || text[1] != 'u') {
            return fail("an unusual escape");
        }
        int code = read_code(from, at + 2);
        at += 6;
        if (code >= 0xd800 && code < 0xdc00 && at + 1 < from->size &&
            from->text[at] == '\\' && from->text[at + 1] == 'u') {
            int low = read_code(from, at + 2);
            at += 6;
            code = low < 0xdc00 ? -1 : 0x10000 + ((code - 0xd800) << 10) + low - 0xdc00;
            code = low > 0xdfff ? -1 : code;
        }
        if (code < 0 || (code >= 0xd800 && code < 0xe000)) {
            return PyErr_Occurred() ? -1 : fail("an unusual escape");
        }
        if (append_utf8(buffer, code) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Append the bytes that a string is the Base64 of. */
static int append_base64(Json *json, const Slice *from) {
    Py_ssize_t size = from->size, most = size / 4 * 3;
    const uint8_t *text = from->text, *values = json->values;
    if (size % 4 || PyBytes_GET_SIZE(json->body.bytes) - json->body.size < most) {
        return fail("unusual Base64");
    }
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(json->body.bytes) + json->body.size;
    int padding = size && text[size - 1] == '=' ? 1 + (text[size - 2] == '=') : 0;
    uint8_t all = 0;
    for (const uint8_t *end = text + size - (padding ? 4 : 0); text < end; text += 4) {
        uint8_t a = values[text[0]], b = values[text[1]];
        uint8_t c = values[text[2]], d = values[text[3]];
        all |= a | b | c | d;
        *to++ = (uint8_t)(a << 2 | b >> 4);
        *to++ = (uint8_t)(b << 4 | c >> 2);
        *to++ = (uint8_t)(c << 6 | d);
    }
    if (padding) {
        uint8_t a = values[text[0]], b = values[text[1]];
        uint8_t c = padding == 2 ? 0 : values[text[2]];
        int has_more_bits = padding == 2 ? b & 15 : c & 3;
        all |= a | b | c | (has_more_bits ? 128 : 0);
        *to++ = (uint8_t)(a << 2 | b >> 4);
        if (padding == 1) {
            *to++ = (uint8_t)(b << 4 | c >> 2);
        }
    }
    json->body.size += most - padding;
    return all & 0xc0 ? fail("unusual Base64") : 0;
}

/* Read a time in seconds, which must be whole microseconds. */
static int read_seconds(Reader *r, int64_t *micros) {
    uint64_t number = 0;
    int digits = 0, is_fraction = 0, scale = 6;
    for (peek(r); r->next < r->end; r->next++) {
        int byte = *r->next;
        if (byte >= '0' && byte <= '9' && digits < 18) {
            number = 10 * number + (uint64_t)(byte - '0');
            digits++;
            scale -= is_fraction;
        } else if (byte == '.' && digits && !is_fraction) {
            is_fraction = 1;
        } else {
            break;
        }
    }
    if (r->next < r->end && (*r->next == 'E' || *r->next == 'e')) {
        int exponent = 0;
        for (r->next++; r->next < r->end && *r->next >= '0' && *r->next <= '9';) {
            exponent = 10 * exponent + *r->next++ - '0';
            if (exponent > 18) {
                return fail("an unusual time");
            }
        }
        scale += exponent;
    }
    for (; scale > 0 && number < EXACT_MICROS; scale--) {
        number *= 10;
    }
    for (; scale < 0 && number % 10 == 0; scale++) {
        number /= 10;
    }
    if (!digits || scale || number >= EXACT_MICROS) {
        return fail("an unusual time");
    }
    *micros = (int64_t)number;
    return 0;
}

/* Append a string of a record. */
static int append_string(Json *json, int part, Entry *entry) {
    Slice text;
    int failed, has_escapes = 0;
    Py_ssize_t begin = json->body.size;
    if (part == DATA) {
        failed = read_quoted(&json->r, &text) || append_base64(json, &text);
    } else if ((has_escapes = read_string(&json->r, &text)) > 0) {
        failed = append_unescaped(&json->body, &text);
    } else {
        failed = has_escapes || append(&json->body, text.text, text.size);
    }
    if (failed) {
        return -1;
    }
    const uint8_t *body = (const uint8_t *)PyBytes_AS_STRING(json->body.bytes);
    text = (Slice){body + begin, json->body.size - begin};
    place(entry, part, &text, body);
    if (part == DATA) {
        json->has_prefix |= begins_with(&text, &json->prefix);
        return 0;
    }
    return check_utf8(&text);
}

static int read_json_record(Json *json) {
    const Slice reserved = {(const uint8_t *)"-", 1}; /* for fields that nobody sends */
    Reader *r = &json->r;
    Entry entry = {.sub_number = WHOLE};
    int fields = 0, byte = '{';
    entry.size[PARTITION_KEY] = entry.size[HASH_KEY] = MISSING;
    do {
        Slice key;
        int field = 0, failed;
        if (expect(r, byte) || read_quoted(r, &key) || expect(r, ':')) {
            return -1;
        }
        if (is_name(&key, "SequenceNumber")) {
            field = 1;
            failed = append_string(json, SEQUENCE_NUMBER, &entry);
        } else if (is_name(&key, "PartitionKey")) {
            field = 2;
            if (peek(r) == 'n' && r->end - r->next >= 4 && !memcmp(r->next, "null", 4)) {
                r->next += 4;
                failed = 0;
            } else {
                failed = append_string(json, PARTITION_KEY, &entry);
            }
        } else if (is_name(&key, "Data")) {
            field = 4;
            failed = append_string(json, DATA, &entry);
        } else if (is_name(&key, "ApproximateArrivalTimestamp")) {
            field = 8;
            failed = read_seconds(r, &entry.micros);
        } else if (memchr(key.text, '\\', key.size) || begins_with(&key, &reserved)) {
            return fail("an unusual name");
        } else {
            failed = skip_value(r);
        }
        if (failed) {
            return -1;
        }
        if (fields & field) {
            return fail("a field that comes twice");
        }
        fields |= field;
        byte = ',';
    } while (peek(r) == ',');
    if ((fields | 2) != 15) {
        return fail("a missing field");
    }
    return expect(r, '}') || append(&json->entries, &entry, sizeof(entry)) ? -1 : 0;
}

static int read_json_records(Json *json) {
    Reader *r = &json->r;
    if (expect(r, '[') < 0) {
        return -1;
    }
    if (peek(r) != ']') {
        do {
            if (read_json_record(json) < 0) {
                return -1;
            }
        } while (peek(r) == ',' && r->next++);
    }
    return expect(r, ']');
}

/* Read the records, and find their array in the input. The rest is not checked. */
static int read_json_page(Json *json, Slice *array) {
    Reader *r = &json->r;
    Slice key;
    int byte = '{', failed;
    array->text = NULL;
    do {
        if (expect(r, byte) || read_quoted(r, &key) || expect(r, ':')) {
            return -1;
        }
        if (!is_name(&key, "Records")) {
            failed = skip_value(r);
        } else if (array->text != NULL) {
            failed = fail("a name that comes twice");
        } else {
            array->text = r->next;
            failed = read_json_records(json);
            array->size = r->next - array->text;
        }
        if (failed) {
            return -1;
        }
        byte = ',';
    } while (peek(r) == ',');
    return array->text == NULL ? fail("no records") : 0;
}

/* Return a page without its records. */
static PyObject *without_array(const Py_buffer *page, const Slice *array) {
    const uint8_t *begin = page->buf;
    Py_ssize_t before = array->text - begin, after = page->len - before - array->size;
    PyObject *rest = PyBytes_FromStringAndSize(NULL, before + 2 + after);
    if (rest != NULL) {
        char *to = PyBytes_AS_STRING(rest);
        memcpy(to, begin, before);
        memcpy(to + before, "[]", 2);
        memcpy(to + before + 2, array->text + array->size, after);
    }
    return rest;
}

static PyObject *json_index_of(const Py_buffer *page, const Slice *prefix) {
    Json json = {.r = {page->buf, (const uint8_t *)page->buf + page->len, 0},
                 .prefix = *prefix};
    Slice array;
    PyObject *rest = NULL, *body = NULL, *entries = NULL, *result = NULL;
    memset(json.values, 128, sizeof(json.values));
    for (int i = 0; i < 64; i++) {
        json.values[(uint8_t)BASE64[i]] = (uint8_t)i;
    }
    json.body.bytes = PyBytes_FromStringAndSize(NULL, page->len);
    json.entries.bytes = PyBytes_FromStringAndSize(NULL, 64 * sizeof(Entry));
    if (json.body.bytes != NULL && json.entries.bytes != NULL &&
        read_json_page(&json, &array) == 0 &&
        (rest = without_array(page, &array)) != NULL &&
        (body = cut(&json.body)) != NULL && (entries = cut(&json.entries)) != NULL) {
        PyObject *has_prefix = json.has_prefix ? Py_True : Py_False;
        result = Py_BuildValue("OOOO", body, entries, has_prefix, rest);
    }
    Py_XDECREF(json.body.bytes);
    Py_XDECREF(json.entries.bytes);
    Py_XDECREF(rest);
    Py_XDECREF(body);
    Py_XDECREF(entries);
    return result;
}

static PyObject *read_json(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    return read_with(given, count, "read_json", json_index_of);
}

static PyObject *data_bytes(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Records records;
    int64_t size = 0;
    if (!has_arguments(count, 4, "data_bytes") ||
        open_records(&records, given[0], given[1], given[2], given[3]) < 0) {
        return NULL;
    }
    for (Py_ssize_t i = records.first; i < records.stop; i++) {
        size += entry_at(&records, i)->size[DATA];
    }
    release(&records);
    return PyLong_FromLongLong(size);
}

/* --- KPL aggregates ----------------------------------------------------------------- */

/* wire/aggregation.py has the layout. A message that isn't read here is read in Python,
 * which also decides whether it is valid: groups, and keys that aren't UTF-8. */

#define DIGEST_BYTES 16
#define HASH_DIGITS 39
static const char HASH_KEYS[] = "340282366920938463463374607431768211456"; /* 2^128 */
enum { VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 5 };
/* The tags of a message's fields, and of the fields of a user record. */
enum { KEY_TAG = 0x0a, HASH_TAG = 0x12, USER_TAG = 0x1a };
enum { KEY_INDEX_TAG = 0x08, HASH_INDEX_TAG = 0x10, DATA_TAG = 0x1a };

typedef struct {
    uint64_t tag, number;
    Slice bytes;
} Field;

/* Read a number of at most so many bytes. One that exceeds 64 bits becomes the greatest. */
static int read_varint(Reader *r, int most, uint64_t *number) {
    *number = 0;
    for (int i = 0; i < most && r->next < r->end; i++) {
        uint64_t low = *r->next & 127;
        *number = i == 9 && low > 1 ? UINT64_MAX : *number | low << 7 * i;
        if (*r->next++ < 128) {
            return 0;
        }
    }
    return fail("a number without an end");
}

static int read_proto_field(Reader *r, Field *field) {
    uint64_t size = 4;
    if (read_varint(r, 5, &field->tag) < 0) {
        return -1;
    }
    if (field->tag < 8 || field->tag > UINT32_MAX) {
        return fail("an unusual field");
    }
    switch (field->tag & 7) {
    case VARINT:
        return read_varint(r, 10, &field->number);
    case SIZED:
        if (read_varint(r, 5, &size) < 0) {
            return -1;
        }
        break;
    case EIGHT_BYTES:
        size = 8;
        break;
    case FOUR_BYTES:
        break;
    default:
        return fail("a group");
    }
    if ((uint64_t)(r->end - r->next) < size) {
        return fail("the end is missing");
    }
    field->bytes = (Slice){r->next, (Py_ssize_t)size};
    r->next += size;
    return 0;
}

/* The user records that are being read. */
typedef struct {
    const uint8_t *body;
    Buffer entries;
    Buffer keys, hashes; /* the tables of a message, of Slices */
    PyObject *hash_keys; /* the set of those in the tables */
} Opening;

/* Add a partition key to its table. */
static int add_key(Opening *o, const Slice *key) {
    return check_utf8(key) || append(&o->keys, key, sizeof(*key)) ? -1 : 0;
}

/* Add an explicit hash key to its table. Other text in its place is a missing one. */
static int add_hash_key(Opening *o, Slice key) {
    int is_valid = key.size > 0 && key.size <= HASH_DIGITS;
    for (Py_ssize_t i = 0; i < key.size && is_valid; i++) {
        is_valid = key.text[i] >= '0' && key.text[i] <= '9';
    }
    if (is_valid && key.size == HASH_DIGITS) {
        is_valid = memcmp(key.text, HASH_KEYS, HASH_DIGITS) < 0;
    }
    if (!is_valid) {
        key = (Slice){NULL, 0};
    } else {
        PyObject *text = text_of(&key);
        int failed = text == NULL ? -1 : PySet_Add(o->hash_keys, text);
        Py_XDECREF(text);
        if (failed) {
            return -1;
        }
    }
    return append(&o->hashes, &key, sizeof(key));
}

/* Add a user record, with its places in the tables in place of its keys. */
static int add_user(Opening *o, const Slice *user, Entry *entry) {
    Reader r = {user->text, user->text + user->size, 0};
    Field field;
    entry->at[PARTITION_KEY] = entry->at[HASH_KEY] = MISSING;
    entry->size[DATA] = MISSING;
    while (r.next < r.end) {
        if (read_proto_field(&r, &field) < 0) {
            return -1;
        }
        if (field.tag == DATA_TAG) {
            place(entry, DATA, &field.bytes, o->body);
        } else if (field.tag == KEY_INDEX_TAG || field.tag == HASH_INDEX_TAG) {
            int part = field.tag == KEY_INDEX_TAG ? PARTITION_KEY : HASH_KEY;
            entry->at[part] = field.number < MISSING ? (uint32_t)field.number : MISSING;
        }
    }
    if (entry->size[DATA] == MISSING) {
        return fail("no data");
    }
    return append(&o->entries, entry, sizeof(*entry));
}

/* Return an entry of a table, or NULL. */
static const Slice *entry_of(const Buffer *table, uint32_t index) {
    return index < table->size / (Py_ssize_t)sizeof(Slice)
               ? (const Slice *)PyBytes_AS_STRING(table->bytes) + index
               : NULL;
}

/* Add the user records of a message, whose Kinesis record is given. */
static int add_message(Opening *o, const Slice *message, const Entry *of) {
    Reader r = {message->text, message->text + message->size, 0};
    Py_ssize_t first = o->entries.size;
    Entry user = *of;
    Field field;
    o->keys.size = o->hashes.size = 0;
    user.sub_number = 0;
    while (r.next < r.end) {
        int failed = read_proto_field(&r, &field);
        if (!failed && field.tag == KEY_TAG) {
            failed = add_key(o, &field.bytes);
        } else if (!failed && field.tag == HASH_TAG) {
            failed = add_hash_key(o, field.bytes);
        } else if (!failed && field.tag == USER_TAG) {
            failed = add_user(o, &field.bytes, &user);
            user.sub_number++;
        }
        if (failed) {
            return -1;
        }
    }
    const Slice none = {NULL, 0};
    for (Py_ssize_t at = first; at < o->entries.size; at += sizeof(Entry)) {
        Entry *entry = (Entry *)(PyBytes_AS_STRING(o->entries.bytes) + at);
        const Slice *key = entry_of(&o->keys, entry->at[PARTITION_KEY]);
        const Slice *hash_key = entry_of(&o->hashes, entry->at[HASH_KEY]);
        if (key == NULL) {
            return fail("no partition key");
        }
        place(entry, PARTITION_KEY, key, o->body);
        place(entry, HASH_KEY, hash_key == NULL ? &none : hash_key, o->body);
    }
    return 0;
}

/* Add a record, or its user records. Return 1 if they can't be read here. */
static int add_opened(Opening *o, const Records *records, const Entry *entry,
                      const Slice *prefix, PyObject *is_intact) {
    Slice data;
    if (find(records, entry, DATA, &data) < 0) {
        return -1;
    }
    if (!begins_with(&data, prefix)) {
        return append(&o->entries, entry, sizeof(*entry));
    }
    if (data.size < prefix->size + DIGEST_BYTES) {
        return 1;
    }
    PyObject *answer = PyObject_CallFunction(is_intact, "nn", (Py_ssize_t)entry->at[DATA],
                                             (Py_ssize_t)entry->at[DATA] + data.size);
    int known = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (known <= 0) {
        return known < 0 ? -1 : 1;
    }
    Slice message = {data.text + prefix->size, data.size - prefix->size - DIGEST_BYTES};
    Py_ssize_t before = o->entries.size;
    if (add_message(o, &message, entry) == 0) {
        return 0;
    }
    if (o->entries.bytes == NULL || !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    }
    PyErr_Clear();
    o->entries.size = before;
    return 1;
}

/* Return a copy of the part of a body that has some of its records, and make the
 * entries refer to the copy. */
static PyObject *part_of(const Records *records, Py_ssize_t stop, Buffer *entries) {
    uint32_t first = stop > records->first ? UINT32_MAX : 0, last = 0;
    for (Py_ssize_t i = records->first; i < stop; i++) {
        const Entry *entry = entry_at(records, i);
        for (int part = 0; part < STRINGS; part++) {
            Slice string;
            if (find(records, entry, part, &string) < 0) {
                return NULL;
            }
            if (string.text != NULL) {
                uint32_t end = entry->at[part] + entry->size[part];
                first = entry->at[part] < first ? entry->at[part] : first;
                last = end > last ? end : last;
            }
        }
    }
    for (Py_ssize_t at = 0; at < entries->size; at += sizeof(Entry)) {
        Entry *entry = (Entry *)(PyBytes_AS_STRING(entries->bytes) + at);
        for (int part = 0; part < STRINGS; part++) {
            entry->at[part] -= entry->size[part] == MISSING ? 0 : first;
        }
    }
    return PyBytes_FromStringAndSize((const char *)records->body.buf + first,
                                     last - first);
}

static PyObject *open_in(const Records *records, const Slice *prefix, Py_ssize_t most,
                         Py_ssize_t most_bytes, PyObject *is_intact) {
    Opening o = {.body = records->body.buf};
    PyObject *part = NULL, *entries = NULL, *result = NULL;
    Py_ssize_t next = records->first;
    int failed = 0;
    o.entries.bytes = PyBytes_FromStringAndSize(NULL, 512 * sizeof(Entry));
    o.keys.bytes = PyBytes_FromStringAndSize(NULL, 64 * sizeof(Slice));
    o.hashes.bytes = PyBytes_FromStringAndSize(NULL, 64 * sizeof(Slice));
    o.hash_keys = PySet_New(NULL);
    if (o.entries.bytes != NULL && o.keys.bytes != NULL && o.hashes.bytes != NULL &&
        o.hash_keys != NULL) {
        while (!failed && next < records->stop && most_bytes > 0 &&
               o.entries.size / (Py_ssize_t)sizeof(Entry) < most) {
            const Entry *entry = entry_at(records, next);
            failed = add_opened(&o, records, entry, prefix, is_intact);
            next += !failed;
            most_bytes -= entry->size[DATA];
        }
        if (failed >= 0 && (part = part_of(records, next, &o.entries)) != NULL &&
            (entries = cut(&o.entries)) != NULL) {
            result = Py_BuildValue("OOnO", part, entries, next, o.hash_keys);
        }
    }
    Py_XDECREF(o.entries.bytes);
    Py_XDECREF(o.keys.bytes);
    Py_XDECREF(o.hashes.bytes);
    Py_XDECREF(o.hash_keys);
    Py_XDECREF(part);
    Py_XDECREF(entries);
    return result;
}

static PyObject *open_aggregates(PyObject *self, PyObject *const *given,
                                 Py_ssize_t count) {
    (void)self;
    Records records;
    Py_buffer wanted;
    PyObject *result = NULL;
    if (!has_arguments(count, 8, "open_aggregates") ||
        open_records(&records, given[0], given[1], given[2], given[3]) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(given[4], &wanted, PyBUF_SIMPLE) == 0) {
        Slice prefix = {wanted.buf, wanted.len};
        Py_ssize_t most = PyLong_AsSsize_t(given[5]);
        Py_ssize_t most_bytes = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(given[6]);
        if (!PyErr_Occurred()) {
            result = open_in(&records, &prefix, most, most_bytes, given[7]);
        }
        PyBuffer_Release(&wanted);
    }
    release(&records);
    return result;
}

/* --- copies ------------------------------------------------------------------------- */

static int copy_records(const Records *records, int has_data, Buffer *body,
                        Buffer *entries) {
    const Entry *before = NULL; /* user records share strings with the ones before */
    Entry copied;
    for (Py_ssize_t i = records->first; i < records->stop; i++) {
        const Entry *entry = entry_at(records, i);
        for (int part = 0; part < STRINGS; part++) {
            Slice string;
            if (find(records, entry, part, &string) < 0) {
                return -1;
            }
            if (before != NULL && before->at[part] == entry->at[part] &&
                before->size[part] == entry->size[part]) {
                continue;
            }
            int is_copied = string.text != NULL && (has_data || part == SEQUENCE_NUMBER);
            copied.at[part] = (uint32_t)body->size;
            copied.size[part] = is_copied ? entry->size[part]
                                : part == DATA ? 0
                                               : MISSING;
            if (is_copied && append(body, string.text, string.size) < 0) {
                return -1;
            }
        }
        copied.micros = entry->micros;
        copied.sub_number = entry->sub_number;
        if (append(entries, &copied, sizeof(copied)) < 0) {
            return -1;
        }
        before = entry;
    }
    return 0;
}

static PyObject *copy(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Records records;
    PyObject *result = NULL;
    int has_data;
    if (!has_arguments(count, 5, "copy") || (has_data = PyObject_IsTrue(given[4])) < 0 ||
        open_records(&records, given[0], given[1], given[2], given[3]) < 0) {
        return NULL;
    }
    Py_ssize_t length = records.stop - records.first;
    Buffer body = {PyBytes_FromStringAndSize(NULL, 64 * length + 64), 0};
    Buffer entries = {PyBytes_FromStringAndSize(NULL, sizeof(Entry) * length + 64), 0};
    if (body.bytes != NULL && entries.bytes != NULL &&
        copy_records(&records, has_data, &body, &entries) == 0) {
        PyObject *copied = cut(&body), *index = copied == NULL ? NULL : cut(&entries);
        if (index != NULL) {
            result = PyTuple_Pack(2, copied, index);
        }
        Py_XDECREF(copied);
        Py_XDECREF(index);
    }
    Py_XDECREF(body.bytes);
    Py_XDECREF(entries.bytes);
    release(&records);
    return result;
}

/* --- objects ------------------------------------------------------------------------ */

static PyObject *text_or_none(const Slice *slice) {
    return slice->text == NULL ? Py_NewRef(Py_None) : text_of(slice);
}

/* Return a record of a type whose fields are in the order of ``model.records.Record``. */
static PyObject *object_of(const Records *records, Py_ssize_t index, PyObject *type,
                           PyObject *source) {
    const Entry *entry = entry_at(records, index);
    Slice found[STRINGS];
    for (int part = 0; part < STRINGS; part++) {
        if (find(records, entry, part, &found[part]) < 0) {
            return NULL;
        }
    }
    const Slice *data = &found[DATA];
    PyObject *made = NULL, *fields[7] = {NULL};
    /* Stop at the first error: with one set, most functions must not be called. */
    if ((fields[0] = text_of(&found[SEQUENCE_NUMBER])) &&
        (fields[1] = PyBytes_FromStringAndSize((const char *)data->text, data->size)) &&
        (fields[2] = text_or_none(&found[PARTITION_KEY])) &&
        (fields[3] = PyFloat_FromDouble((double)entry->micros / 1e6)) &&
        (fields[4] = text_or_none(&found[HASH_KEY])) &&
        (fields[5] = entry->sub_number == WHOLE
                         ? Py_NewRef(Py_None)
                         : PyLong_FromLongLong(entry->sub_number))) {
        fields[6] = source;
        made = PyObject_Vectorcall(type, fields, 7, NULL);
    }
    for (int i = 0; i < 6; i++) {
        Py_XDECREF(fields[i]);
    }
    return made;
}

typedef struct {
    PyObject_HEAD
    Records records;  /* ``first`` is the next one */
    Py_ssize_t start; /* of all its records, the first one */
    PyObject *type, *source;
} Iterator;

static PyObject *iterator_next(Iterator *self) {
    Py_ssize_t index = self->records.first;
    if (index >= self->records.stop) {
        return NULL;
    }
    self->records.first = index + 1;
    return object_of(&self->records, index, self->type, self->source);
}

static PyObject *iterator_length(Iterator *self, PyObject *unused) {
    (void)unused;
    Py_ssize_t left = self->records.stop - self->records.first;
    return PyLong_FromSsize_t(left < 0 ? 0 : left);
}

/* Go on at an index, like the iterators of lists and tuples. */
static PyObject *iterator_set_state(Iterator *self, PyObject *state) {
    Py_ssize_t index = PyNumber_AsSsize_t(state, NULL);
    if (index == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t most = self->records.stop - self->start;
    self->records.first = self->start + (index < 0 ? 0 : index > most ? most : index);
    Py_RETURN_NONE;
}

static void iterator_dealloc(Iterator *self) {
    PyTypeObject *type = Py_TYPE(self);
    release(&self->records);
    Py_XDECREF(self->type);
    Py_XDECREF(self->source);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef iterator_methods[] = {
    {"__length_hint__", (PyCFunction)(void (*)(void))iterator_length, METH_NOARGS,
     "Return how many records are left."},
    {"__setstate__", (PyCFunction)(void (*)(void))iterator_set_state, METH_O,
     "Go on at the record with this index, or at the end if it has a greater one."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot iterator_slots[] = {{Py_tp_iter, PyObject_SelfIter},
                                       {Py_tp_iternext, iterator_next},
                                       {Py_tp_dealloc, iterator_dealloc},
                                       {Py_tp_methods, iterator_methods},
                                       {0, NULL}};

static PyType_Spec iterator_spec = {
    .name = "kinesumer.wire._native.RecordIterator",
    .basicsize = sizeof(Iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = iterator_slots,
};

static PyObject *iterate(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    PyTypeObject *type = *(PyTypeObject **)PyModule_GetState(self);
    if (!has_arguments(count, 6, "iterate")) {
        return NULL;
    }
    Iterator *made = (Iterator *)type->tp_alloc(type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->type = Py_NewRef(given[4]);
    made->source = Py_NewRef(given[5]);
    if (open_records(&made->records, given[0], given[1], given[2], given[3]) < 0) {
        Py_CLEAR(made);
    } else {
        made->start = made->records.first;
    }
    return (PyObject *)made;
}

/* --- columns ------------------------------------------------------------------------ */

enum { TIMES = STRINGS, SUB_NUMBERS, COLUMNS };

/* A column, in the memory of Arrow's buffers. */
typedef struct {
    int64_t size;       /* of the values of all records */
    Py_ssize_t missing; /* how many records have no value */
    PyObject *has_value, *offsets, *values;
    uint8_t *bits; /* of ``has_value``; NULL if no value is missing */
    int32_t *ends; /* of ``offsets``, for the next record */
} Column;

/* Check the index, and measure the columns. */
static int measure(const Records *records, Column *columns) {
    for (Py_ssize_t i = records->first; i < records->stop; i++) {
        const Entry *entry = entry_at(records, i);
        for (int part = 0; part < STRINGS; part++) {
            Slice string;
            if (find(records, entry, part, &string) < 0) {
                return -1;
            }
            columns[part].size += string.size;
            columns[part].missing += string.text == NULL;
        }
        columns[SUB_NUMBERS].missing += entry->sub_number == WHOLE;
    }
    for (int part = 0; part < STRINGS; part++) {
        if (columns[part].size > INT32_MAX) {
            return fail("a column of over 2 GiB");
        }
    }
    return 0;
}

/* Allocate the buffers of a column, whose sizes were measured. */
static int allocate(Column *column, int is_string, Py_ssize_t count) {
    if (column->missing) {
        column->has_value = PyBytes_FromStringAndSize(NULL, (count + 7) / 8);
        if (column->has_value == NULL) {
            return -1;
        }
        column->bits = (uint8_t *)PyBytes_AS_STRING(column->has_value);
        memset(column->bits, 0, (count + 7) / 8);
    }
    if (is_string) {
        column->offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * 4);
        if (column->offsets == NULL) {
            return -1;
        }
        column->ends = (int32_t *)PyBytes_AS_STRING(column->offsets);
        *column->ends++ = 0;
    }
    column->values = PyBytes_FromStringAndSize(
        NULL, is_string ? (Py_ssize_t)column->size : 8 * count);
    return column->values == NULL ? -1 : 0;
}

static void fill(const Records *records, Column *columns) {
    for (Py_ssize_t i = records->first, at = 0; i < records->stop; i++, at++) {
        const Entry *entry = entry_at(records, i);
        for (int part = 0; part < STRINGS; part++) {
            Column *column = &columns[part];
            if (column->values == NULL) {
                continue;
            }
            uint32_t size = entry->size[part] == MISSING ? 0 : entry->size[part];
            int32_t end = column->ends[-1];
            memcpy(PyBytes_AS_STRING(column->values) + end,
                   (const char *)records->body.buf + entry->at[part], size);
            *column->ends++ = end + (int32_t)size;
            if (column->bits != NULL && entry->size[part] != MISSING) {
                column->bits[at / 8] |= 1 << at % 8;
            }
        }
        ((int64_t *)PyBytes_AS_STRING(columns[TIMES].values))[at] = entry->micros;
        Column *numbers = &columns[SUB_NUMBERS];
        if (numbers->values != NULL) {
            ((int64_t *)PyBytes_AS_STRING(numbers->values))[at] = entry->sub_number;
            if (numbers->bits != NULL && entry->sub_number != WHOLE) {
                numbers->bits[at / 8] |= 1 << at % 8;
            }
        }
    }
}

/* Return a column's buffers in the order of Arrow, or None if it has no values. */
static PyObject *buffers_of(const Column *column) {
    if (column->values == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *has_value = column->has_value == NULL ? Py_None : column->has_value;
    return column->offsets == NULL
               ? PyTuple_Pack(2, has_value, column->values)
               : PyTuple_Pack(3, has_value, column->offsets, column->values);
}

static PyObject *columns_of(const Records *records) {
    Py_ssize_t count = records->stop - records->first;
    Column columns[COLUMNS] = {{0}};
    PyObject *result = NULL;
    int failed = measure(records, columns);
    for (int i = 0; i < COLUMNS && !failed; i++) {
        if (count == 0 || columns[i].missing < count) {
            failed = allocate(&columns[i], i < STRINGS, count);
        }
    }
    if (!failed && (result = PyTuple_New(COLUMNS)) != NULL) {
        fill(records, columns);
        for (int i = 0; i < COLUMNS && result != NULL; i++) {
            PyObject *buffers = buffers_of(&columns[i]);
            if (buffers == NULL) {
                Py_CLEAR(result);
            } else {
                PyTuple_SET_ITEM(result, i, buffers);
            }
        }
    }
    for (int i = 0; i < COLUMNS; i++) {
        Py_XDECREF(columns[i].has_value);
        Py_XDECREF(columns[i].offsets);
        Py_XDECREF(columns[i].values);
    }
    return result;
}

static PyObject *columns(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Records records;
    if (!has_arguments(count, 4, "columns") ||
        open_records(&records, given[0], given[1], given[2], given[3]) < 0) {
        return NULL;
    }
    PyObject *result = columns_of(&records);
    release(&records);
    return result;
}

static PyObject *new_body(PyObject *self, PyObject *length) {
    (void)self;
    Py_ssize_t size = PyLong_AsSsize_t(length);
    if (size < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a negative size");
        }
        return NULL;
    }
    return PyByteArray_FromStringAndSize(NULL, size);
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"decode", decode, METH_O,
     "decode(body, /)\n--\n\n"
     "Return a body as an object. A time is a float, in seconds. Raise ValueError."},
    {"new_body", new_body, METH_O,
     "new_body(size, /)\n--\n\n"
     "Return a bytearray of this size. Its bytes are not set."},
    {"read_page", FAST(read_page),
     "read_page(body, prefix, /)\n--\n\n"
     "Return an index of a page's records, whether the data of at least one begins with\n"
     "a prefix, and a dictionary of the page's other fields. Other fields of records\n"
     "are left out. Raise ValueError if a record is unusual."},
    {"read_json", FAST(read_json),
     "read_json(body, prefix, /)\n--\n\n"
     "Return the strings of a page's records and their index, whether the data of at\n"
     "least one begins with a prefix, and the page without its records. Raise\n"
     "ValueError if a record is unusual."},
    {"data_bytes", FAST(data_bytes),
     "data_bytes(body, index, first, stop, /)\n--\n\n"
     "Return the size of the data of some records of a page."},
    {"open_aggregates", FAST(open_aggregates),
     "open_aggregates(body, index, first, stop, prefix, most, most_bytes, is_intact, /)"
     "\n--\n\n"
     "Return records of a page, with user records in place of aggregates: as another\n"
     "body, its index, the end of the records that were read, and all explicit hash\n"
     "keys of the aggregates. Aggregates begin with a prefix. Reading ends before one\n"
     "that ``is_intact(begin, end)`` refuses or that is unusual, and as soon as there\n"
     "are ``most`` records or ``most_bytes`` of data."},
    {"copy", FAST(copy),
     "copy(body, index, first, stop, has_data, /)\n--\n\n"
     "Return a copy of some records of a page, as another body and its index. Without\n"
     "``has_data``, the copies have neither data nor partition keys."},
    {"iterate", FAST(iterate),
     "iterate(body, index, first, stop, type, source, /)\n--\n\n"
     "Return an iterator that makes a record of the type for some records of a page."},
    {"columns", FAST(columns),
     "columns(body, index, first, stop, /)\n--\n\n"
     "Return some records of a page as the buffers of Arrow: the sequence numbers,\n"
     "partition keys, data, explicit hash keys, arrival times in microseconds, and\n"
     "sub-sequence numbers. None stands for a column without any value."},
    {NULL, NULL, 0, NULL}};

static int add_type(PyObject *self) {
    PyObject **type = PyModule_GetState(self);
    *type = PyType_FromModuleAndSpec(self, &iterator_spec, NULL);
    return *type == NULL ? -1 : 0;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(*(PyObject **)PyModule_GetState(self));
    return 0;
}

static int clear(PyObject *self) {
    Py_CLEAR(*(PyObject **)PyModule_GetState(self));
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_type},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "kinesumer.wire._native",
    .m_doc = "Decode CBOR.",
    .m_size = sizeof(PyObject *),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
