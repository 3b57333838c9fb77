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

enum { SEQUENCE_NUMBER, PARTITION_KEY, DATA, STRINGS };

typedef struct {
    Slice strings[STRINGS]; /* the text of a partition key that is missing is NULL */
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
    found->strings[PARTITION_KEY] = (Slice){NULL, 0};
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

#define MISSING UINT32_MAX /* the size of a partition key that a record doesn't have */

/* Where the parts of a record are in the body of its page. */
typedef struct {
    uint32_t at[STRINGS], size[STRINGS];
    int64_t milliseconds;
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

/* Find a part of a record. A missing partition key has the text NULL. */
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
            const Slice *string = &next.strings[i];
            int is_missing = string->text == NULL;
            entry.at[i] = is_missing ? 0 : (uint32_t)(string->text - index->body);
            entry.size[i] = is_missing ? MISSING : (uint32_t)string->size;
        }
        entry.milliseconds = next.milliseconds;
        const Slice *data = &next.strings[DATA];
        index->has_prefix |= data->size >= prefix->size &&
                             !memcmp(data->text, prefix->text, prefix->size);
        if (append(&index->entries, &entry, sizeof(entry)) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *index_of(Reader r, const Slice *prefix) {
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

static PyObject *read_page(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Py_buffer view, wanted;
    PyObject *result = NULL;
    if (!has_arguments(count, 2, "read_page") ||
        PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(given[1], &wanted, PyBUF_SIMPLE) == 0) {
        if (view.len > INT32_MAX) {
            fail("a page of over 2 GiB");
        } else {
            Reader r = {view.buf, (const uint8_t *)view.buf + view.len, 0};
            Slice prefix = {wanted.buf, wanted.len};
            result = index_of(r, &prefix);
        }
        PyBuffer_Release(&wanted);
    }
    PyBuffer_Release(&view);
    return result;
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

/* --- copies ------------------------------------------------------------------------- */

static int copy_records(const Records *records, int has_data, Buffer *body,
                        Buffer *entries) {
    for (Py_ssize_t i = records->first; i < records->stop; i++) {
        const Entry *entry = entry_at(records, i);
        Entry copied = {.milliseconds = entry->milliseconds};
        for (int part = 0; part < STRINGS; part++) {
            Slice string;
            if (find(records, entry, part, &string) < 0) {
                return -1;
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
        if (append(entries, &copied, sizeof(copied)) < 0) {
            return -1;
        }
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

/* Return a record of a type whose fields are in the order of ``model.records.Record``. */
static PyObject *object_of(const Records *records, Py_ssize_t index, PyObject *type,
                           PyObject *source) {
    const Entry *entry = entry_at(records, index);
    Slice number, key, data;
    if (find(records, entry, SEQUENCE_NUMBER, &number) < 0 ||
        find(records, entry, PARTITION_KEY, &key) < 0 ||
        find(records, entry, DATA, &data) < 0) {
        return NULL;
    }
    PyObject *made = NULL, *fields[7] = {NULL, NULL, NULL, NULL, Py_None, Py_None, source};
    /* Stop at the first error: with one set, most functions must not be called. */
    if ((fields[0] = text_of(&number)) &&
        (fields[1] = PyBytes_FromStringAndSize((const char *)data.text, data.size)) &&
        (fields[2] = key.text == NULL ? Py_NewRef(Py_None) : text_of(&key)) &&
        (fields[3] = PyFloat_FromDouble((double)entry->milliseconds / 1000.0))) {
        made = PyObject_Vectorcall(type, fields, 7, NULL);
    }
    for (int i = 0; i < 4; i++) {
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

enum { OFFSETS, VALUES, PAIR, TIMES = PAIR * STRINGS, BUFFERS };

/* Check the index, and add up the sizes of each part. Return how many records miss their
 * partition keys, or -1. */
static Py_ssize_t measure(const Records *records, int64_t *sizes) {
    Py_ssize_t missing = 0;
    for (Py_ssize_t i = records->first; i < records->stop; i++) {
        const Entry *entry = entry_at(records, i);
        for (int part = 0; part < STRINGS; part++) {
            Slice string;
            if (find(records, entry, part, &string) < 0) {
                return -1;
            }
            sizes[part] += string.size;
            missing += string.text == NULL && part == PARTITION_KEY;
        }
    }
    for (int part = 0; part < STRINGS; part++) {
        if (sizes[part] > INT32_MAX) {
            return fail("a column of over 2 GiB");
        }
    }
    return missing;
}

/* Fill the buffers of Arrow, whose sizes were measured. */
static void fill(const Records *records, PyObject *const *buffers) {
    int32_t ends[STRINGS] = {0}, *offsets[STRINGS];
    char *values[STRINGS];
    int64_t *times = (int64_t *)PyBytes_AS_STRING(buffers[TIMES]);
    for (int part = 0; part < STRINGS; part++) {
        offsets[part] = (int32_t *)PyBytes_AS_STRING(buffers[PAIR * part + OFFSETS]);
        values[part] = PyBytes_AS_STRING(buffers[PAIR * part + VALUES]);
        *offsets[part]++ = 0;
    }
    for (Py_ssize_t i = records->first; i < records->stop; i++) {
        const Entry *entry = entry_at(records, i);
        for (int part = 0; part < STRINGS; part++) {
            if (entry->size[part] != MISSING) {
                memcpy(values[part] + ends[part],
                       (const char *)records->body.buf + entry->at[part],
                       entry->size[part]);
                ends[part] += (int32_t)entry->size[part];
            }
            *offsets[part]++ = ends[part];
        }
        *times++ = entry->milliseconds * 1000;
    }
}

static PyObject *columns_of(const Records *records) {
    Py_ssize_t count = records->stop - records->first;
    int64_t sizes[STRINGS] = {0};
    Py_ssize_t missing = measure(records, sizes);
    PyObject *made[BUFFERS] = {NULL}, *result = NULL;
    int failed = missing < 0;
    for (int i = 0; i < BUFFERS && !failed; i++) {
        Py_ssize_t size = i == TIMES             ? count * (Py_ssize_t)sizeof(int64_t)
                          : i % PAIR == OFFSETS ? (count + 1) * (Py_ssize_t)sizeof(int32_t)
                                                : (Py_ssize_t)sizes[i / PAIR];
        made[i] = PyBytes_FromStringAndSize(NULL, size);
        failed = made[i] == NULL;
    }
    if (!failed) {
        fill(records, made);
        if (missing) {
            Py_SETREF(made[PAIR * PARTITION_KEY + OFFSETS],
                      PyBytes_FromStringAndSize("", 0));
        }
        result = PyTuple_New(BUFFERS);
    }
    for (int i = 0; i < BUFFERS; i++) {
        if (result != NULL) {
            PyTuple_SET_ITEM(result, i, made[i]);
        } else {
            Py_XDECREF(made[i]);
        }
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
    {"data_bytes", FAST(data_bytes),
     "data_bytes(body, index, first, stop, /)\n--\n\n"
     "Return the size of the data of some records of a page."},
    {"copy", FAST(copy),
     "copy(body, index, first, stop, has_data, /)\n--\n\n"
     "Return a copy of some records of a page, as another body and its index. Without\n"
     "``has_data``, the copies have neither data nor partition keys."},
    {"iterate", FAST(iterate),
     "iterate(body, index, first, stop, type, source, /)\n--\n\n"
     "Return an iterator that makes a record of the type for some records of a page."},
    {"columns", FAST(columns),
     "columns(body, index, first, stop, /)\n--\n\n"
     "Return some records of a page as the buffers of Arrow: the offsets and values of\n"
     "sequence numbers, partition keys and data, and the arrival times in microseconds.\n"
     "If a record has no partition key, the offsets of the keys are empty."},
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
