/* Read a page of records in CBOR, as objects or as the columns of Arrow.
 *
 * The input is an answer of Kinesis: RFC 8949, with AWS's own meaning of times. An
 * integer with tag 1 is in milliseconds since 1970. Other tags are left out. Input that
 * is not a usual page raises ValueError. The decoder in Python then reads it, or tells
 * what is wrong with it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define MAX_DEPTH 12
#define INDEFINITE 31
#define BREAK 0xff
#define TIME_TAG 1
#define END_MILLISECONDS 253402300800000 /* the year 10000 */

enum { NATURAL, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };

typedef struct {
    const uint8_t *next, *end; /* the input that is not read yet */
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

static int read_head(Reader *r, Head *head) {
    if (r->next == r->end) {
        return fail("the end is missing");
    }
    int low = *r->next & 31;
    head->major = *r->next++ >> 5;
    head->indefinite = low == INDEFINITE;
    head->number = low < 24 ? (uint64_t)low : 0;
    if (low < 24 || head->indefinite) {
        return 0;
    }
    if (low > 27) {
        return fail("a reserved length");
    }
    int size = 1 << (low - 24);
    if (r->end - r->next < size) {
        return fail("the end is missing");
    }
    for (int i = 0; i < size; i++) {
        head->number = head->number << 8 | *r->next++;
    }
    return 0;
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

/* Check that a text is UTF-8. */
static int check_utf8(const Slice *slice) {
    const char *text = (const char *)slice->text;
    Py_ssize_t at = 0, size = slice->size;
    uint64_t word;
    for (; size - at >= 8; at += 8) { /* most texts are ASCII */
        memcpy(&word, text + at, 8);
        if (word & 0x8080808080808080) {
            break;
        }
    }
    for (; at < size; at++) {
        if ((uint8_t)text[at] >= 0x80) {
            PyObject *decoded = PyUnicode_DecodeUTF8(text, size, "strict");
            Py_XDECREF(decoded);
            return decoded == NULL ? -1 : 0;
        }
    }
    return 0;
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
        Slice key, other;
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
        } else if (is_name(&key, "EncryptionType")) {
            field = 0;
            failed = read_slice(r, TEXT, &other) || check_utf8(&other);
        } else {
            return fail("an unusual field");
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

/* Move to the records of an answer, and read the head of their array. */
static int find_records(Reader *r, const uint8_t **array, Head *head) {
    Head answer;
    if (read_head(r, &answer) < 0) {
        return -1;
    }
    if (answer.major != MAP) {
        return fail("no map");
    }
    for (uint64_t seen = 0; !is_end(r, &answer, seen); seen++) {
        Slice key;
        if (read_slice(r, TEXT, &key) < 0) {
            return -1;
        }
        if (is_name(&key, "Records")) {
            *array = r->next;
            if (read_head(r, head) < 0) {
                return -1;
            }
            return head->major == ARRAY ? 0 : fail("no array of records");
        }
        if (skip(r, 1) < 0) {
            return -1;
        }
    }
    return fail("no records");
}

/* --- objects ------------------------------------------------------------------------ */

/* Return a new record of a type whose first four fields are known. */
static PyObject *object_of(const Record *record, PyObject *type) {
    const Slice *number = &record->strings[SEQUENCE_NUMBER];
    const Slice *key = &record->strings[PARTITION_KEY], *data = &record->strings[DATA];
    PyObject *made = NULL, *fields[4] = {NULL};
    /* Stop at the first error: with one set, most functions must not be called. */
    if ((fields[0] = PyUnicode_DecodeUTF8((const char *)number->text, number->size,
                                          "strict")) &&
        (fields[1] = PyBytes_FromStringAndSize((const char *)data->text, data->size)) &&
        (fields[2] = key->text == NULL
                         ? Py_NewRef(Py_None)
                         : PyUnicode_DecodeUTF8((const char *)key->text, key->size,
                                                "strict")) &&
        (fields[3] = PyFloat_FromDouble((double)record->milliseconds / 1000.0))) {
        made = PyObject_Vectorcall(type, fields, 4, NULL);
    }
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(fields[i]);
    }
    return made;
}

static PyObject *to_records(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Py_buffer view;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "to_records() takes two arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Reader r = {view.buf, (const uint8_t *)view.buf + view.len};
    const uint8_t *array = NULL;
    Head head;
    PyObject *records = NULL, *result = NULL;
    if (find_records(&r, &array, &head) == 0) {
        records = PyList_New(0);
    }
    for (uint64_t seen = 0; records != NULL && !is_end(&r, &head, seen); seen++) {
        Record next;
        PyObject *made =
            read_record(&r, &next) < 0 ? NULL : object_of(&next, given[1]);
        if (made == NULL || PyList_Append(records, made) < 0) {
            Py_CLEAR(records);
        }
        Py_XDECREF(made);
    }
    if (records != NULL) {
        result = Py_BuildValue(
            "nnN", (Py_ssize_t)(array - (const uint8_t *)view.buf),
            (Py_ssize_t)(r.next - (const uint8_t *)view.buf), records);
    }
    PyBuffer_Release(&view);
    return result;
}

/* --- columns ------------------------------------------------------------------------ */

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
    memcpy(PyBytes_AS_STRING(buffer->bytes) + filled, from, size);
    buffer->size += size;
    return 0;
}

enum { OFFSETS, VALUES, PAIR, TIMES = PAIR * STRINGS, BUFFERS };

/* The buffers of Arrow: offsets and values of each of the strings, then the times. If no
 * record has a partition key, those of the keys are empty. */
typedef struct {
    Buffer buffers[BUFFERS];
    int32_t ends[STRINGS];
    Py_ssize_t count;
} Columns;

static int append_string(Columns *columns, int string, const Slice *slice) {
    if (slice->text == NULL) {
        return 0;
    }
    Buffer *pair = &columns->buffers[PAIR * string];
    columns->ends[string] += (int32_t)slice->size;
    if (append(&pair[VALUES], slice->text, slice->size) < 0) {
        return -1;
    }
    return append(&pair[OFFSETS], &columns->ends[string], sizeof(int32_t));
}

/* Copy each record once, while the processor has it in its cache. */
static int append_records(Reader *r, const Head *head, const Slice *prefix,
                          Columns *columns, int *has_prefix) {
    for (int i = 0; i < STRINGS; i++) {
        Buffer *offsets = &columns->buffers[PAIR * i + OFFSETS];
        if (append(offsets, &columns->ends[i], sizeof(int32_t)) < 0) {
            return -1;
        }
    }
    Buffer *keys = &columns->buffers[PAIR * PARTITION_KEY + OFFSETS];
    while (!is_end(r, head, (uint64_t)columns->count)) {
        Record next;
        if (read_record(r, &next) < 0 || check_utf8(&next.strings[SEQUENCE_NUMBER]) ||
            check_utf8(&next.strings[PARTITION_KEY])) {
            return -1;
        }
        if (columns->count == 0 && next.strings[PARTITION_KEY].text == NULL) {
            keys->size = 0;
        }
        if ((keys->size == 0) != (next.strings[PARTITION_KEY].text == NULL)) {
            return fail("a partition key in some records only");
        }
        for (int i = 0; i < STRINGS; i++) {
            if (append_string(columns, i, &next.strings[i]) < 0) {
                return -1;
            }
        }
        int64_t micros = next.milliseconds * 1000;
        if (append(&columns->buffers[TIMES], &micros, sizeof(micros)) < 0) {
            return -1;
        }
        const Slice *data = &next.strings[DATA];
        *has_prefix |= data->size >= prefix->size &&
                       !memcmp(data->text, prefix->text, prefix->size);
        columns->count++;
    }
    return columns->count ? 0 : fail("no records");
}

/* Return a tuple of the buffers, cut to their sizes, or NULL. */
static PyObject *cut(Columns *columns) {
    PyObject *all = PyTuple_New(BUFFERS);
    for (int i = 0; all != NULL && i < BUFFERS; i++) {
        Buffer *buffer = &columns->buffers[i];
        if (_PyBytes_Resize(&buffer->bytes, buffer->size) < 0) {
            Py_CLEAR(all);
        } else {
            PyTuple_SET_ITEM(all, i, buffer->bytes);
            buffer->bytes = NULL;
        }
    }
    return all;
}

static PyObject *columns_of(Reader r, const Slice *prefix) {
    const uint8_t *begin = r.next, *array = NULL;
    Columns columns = {0};
    Head head;
    int has_prefix = 0, failed = find_records(&r, &array, &head);
    PyObject *all = NULL;
    for (int i = 0; i < BUFFERS && !failed; i++) {
        /* The data is most of an answer, which need not grow then. */
        Py_ssize_t capacity = i == PAIR * DATA + VALUES ? r.end - begin : 4096;
        columns.buffers[i].bytes = PyBytes_FromStringAndSize(NULL, capacity);
        failed = columns.buffers[i].bytes == NULL;
    }
    if (!failed && append_records(&r, &head, prefix, &columns, &has_prefix) == 0) {
        all = cut(&columns);
    }
    for (int i = 0; i < BUFFERS; i++) {
        Py_XDECREF(columns.buffers[i].bytes);
    }
    if (all == NULL) {
        return NULL;
    }
    return Py_BuildValue("nnnNN", (Py_ssize_t)(array - begin),
                         (Py_ssize_t)(r.next - begin), columns.count,
                         PyBool_FromLong(has_prefix), all);
}

static PyObject *to_columns(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Py_buffer view, wanted;
    PyObject *result = NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "to_columns() takes two arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(given[1], &wanted, PyBUF_SIMPLE) == 0) {
        if (view.len > INT32_MAX) {
            fail("a page of over 2 GiB");
        } else {
            Reader r = {view.buf, (const uint8_t *)view.buf + view.len};
            Slice prefix = {wanted.buf, wanted.len};
            result = columns_of(r, &prefix);
        }
        PyBuffer_Release(&wanted);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"to_records", (PyCFunction)(void (*)(void))to_records, METH_FASTCALL,
     "to_records(body, type, /)\n--\n\n"
     "Return where the array of a page's records begins and ends, and its records.\n"
     "Each is a call of the type with sequence number, data, partition key and arrival\n"
     "time in seconds. Raise ValueError unless each record has exactly these fields. A\n"
     "missing partition key is None. The type of encryption is left out."},
    {"to_columns", (PyCFunction)(void (*)(void))to_columns, METH_FASTCALL,
     "to_columns(body, prefix, /)\n--\n\n"
     "Return the records of a page as columns: where their array begins and ends in\n"
     "the page, their number, whether the data of at least one begins with a prefix,\n"
     "and the buffers of Arrow. These are the offsets and values of sequence numbers,\n"
     "partition keys and data, and the arrival times in microseconds. Raise ValueError\n"
     "unless each record has exactly these fields. If no record has a partition key, the\n"
     "buffers of the keys are empty. The type of encryption is left out."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "kinesumer_native", "Decode CBOR faster.", 0, functions,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_kinesumer_native(void) { return PyModule_Create(&module); }
