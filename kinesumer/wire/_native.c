/* Read CBOR: a page of records as objects or as the columns of Arrow, or any body.
 *
 * The input is RFC 8949, as AWS writes it: an integer with tag 1 is a time, in
 * milliseconds since 1970. What AWS does not write raises ValueError: other tags,
 * floating-point numbers, strings in parts, and names that come twice. kinesumer then
 * reads the same page in JSON.
 *
 * The module has no state, and what its functions make is theirs until they return it. So
 * they need neither a lock nor the GIL. Should another thread write to a bytearray while
 * it is read, the values are undefined, but each length is still compared with the end:
 * a buffer that is in use keeps its size. */

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

static PyObject *text_of(const Slice *slice) {
    return PyUnicode_DecodeUTF8((const char *)slice->text, slice->size, "strict");
}

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

/* --- objects ------------------------------------------------------------------------ */

/* Return a new record of a type whose first four fields are known. */
static PyObject *object_of(const Record *record, PyObject *type) {
    const Slice *number = &record->strings[SEQUENCE_NUMBER];
    const Slice *key = &record->strings[PARTITION_KEY], *data = &record->strings[DATA];
    PyObject *made = NULL, *fields[4] = {NULL};
    /* Stop at the first error: with one set, most functions must not be called. */
    if ((fields[0] = text_of(number)) &&
        (fields[1] = PyBytes_FromStringAndSize((const char *)data->text, data->size)) &&
        (fields[2] = key->text == NULL ? Py_NewRef(Py_None) : text_of(key)) &&
        (fields[3] = PyFloat_FromDouble((double)record->milliseconds / 1000.0))) {
        made = PyObject_Vectorcall(type, fields, 4, NULL);
    }
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(fields[i]);
    }
    return made;
}

typedef struct {
    PyObject *records, *type;
} Objects;

static int read_objects(Reader *r, const Head *head, void *into) {
    Objects *objects = into;
    for (uint64_t seen = 0; !is_end(r, head, seen); seen++) {
        Record next;
        PyObject *made =
            read_record(r, &next) < 0 ? NULL : object_of(&next, objects->type);
        int failed = made == NULL ? -1 : PyList_Append(objects->records, made);
        Py_XDECREF(made);
        if (failed) {
            return failed;
        }
    }
    return 0;
}

static PyObject *read_page(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Py_buffer view;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "read_page() takes two arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Reader r = {view.buf, (const uint8_t *)view.buf + view.len, 0};
    Objects objects = {PyList_New(0), given[1]};
    PyObject *fields = NULL, *result = NULL;
    if (objects.records != NULL) {
        fields = read_answer(&r, read_objects, &objects);
    }
    if (fields != NULL) {
        result = PyTuple_Pack(2, objects.records, fields);
    }
    Py_XDECREF(objects.records);
    Py_XDECREF(fields);
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
    Slice prefix;
    int has_prefix; /* whether the data of at least one record begins with the prefix */
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
static int append_records(Reader *r, const Head *head, void *into) {
    Columns *columns = into;
    const Slice *prefix = &columns->prefix;
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
        columns->has_prefix |= data->size >= prefix->size &&
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
    Columns columns = {.prefix = *prefix};
    PyObject *fields = NULL, *all = NULL, *result = NULL;
    int failed = 0;
    for (int i = 0; i < BUFFERS && !failed; i++) {
        /* The data is most of an answer, which need not grow then. */
        Py_ssize_t capacity = i == PAIR * DATA + VALUES ? r.end - r.next : 4096;
        columns.buffers[i].bytes = PyBytes_FromStringAndSize(NULL, capacity);
        failed = columns.buffers[i].bytes == NULL;
    }
    if (!failed && (fields = read_answer(&r, append_records, &columns)) != NULL) {
        all = cut(&columns);
    }
    for (int i = 0; i < BUFFERS; i++) {
        Py_XDECREF(columns.buffers[i].bytes);
    }
    if (all != NULL) {
        result = Py_BuildValue("nNOO", columns.count, PyBool_FromLong(columns.has_prefix),
                               all, fields);
    }
    Py_XDECREF(all);
    Py_XDECREF(fields);
    return result;
}

static PyObject *read_columns(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    (void)self;
    Py_buffer view, wanted;
    PyObject *result = NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "read_columns() takes two arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(given[1], &wanted, PyBUF_SIMPLE) == 0) {
        if (view.len > INT32_MAX) {
            fail("a page of over 2 GiB");
        } else {
            Reader r = {view.buf, (const uint8_t *)view.buf + view.len, 0};
            Slice prefix = {wanted.buf, wanted.len};
            result = columns_of(r, &prefix);
        }
        PyBuffer_Release(&wanted);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"decode", decode, METH_O,
     "decode(body, /)\n--\n\n"
     "Return a body as an object. A time is a float, in seconds. Raise ValueError."},
    {"read_page", (PyCFunction)(void (*)(void))read_page, METH_FASTCALL,
     "read_page(body, type, /)\n--\n\n"
     "Return the records of a page, and a dictionary of its other fields. Each record\n"
     "is a call of the type with sequence number, data, partition key and arrival time\n"
     "in seconds. A missing partition key is None. Other fields of records are left\n"
     "out. Raise ValueError if a record is unusual."},
    {"read_columns", (PyCFunction)(void (*)(void))read_columns, METH_FASTCALL,
     "read_columns(body, prefix, /)\n--\n\n"
     "Return the records of a page as columns: their number, whether the data of at\n"
     "least one begins with a prefix, the buffers of Arrow, and a dictionary of the\n"
     "page's other fields. The buffers are the offsets and values of sequence numbers,\n"
     "partition keys and data, and the arrival times in microseconds. If no record has\n"
     "a partition key, the buffers of the keys are empty. Raise ValueError as\n"
     "read_page() does, and if there are no records."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {
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
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
