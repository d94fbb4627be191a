// The kernels as functions of Python, for addresses of tensors.
//
// The functions of OpenMP come from the library that torch has loaded, whose threads are used.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "kernels.h"

typedef unsigned long long Address;

static PyObject *nothing(int done) {
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_multiply(PyObject *self, PyObject *args) {
    Address x, norm, packed, residual, to;
    float eps;
    int rows, gated, groups, bits, outputs, wide, threads, done;
    (void)self;
    if (!PyArg_ParseTuple(args, "(Kip)(Kf)(Kiii)(KK)pi", &x, &rows, &gated, &norm, &eps, &packed,
                          &bits, &groups, &outputs, &residual, &to, &wide, &threads))
        return NULL;
    const Source source = {(const float *)x, (const float *)norm, eps, gated, rows, groups};
    const Weights weights = {(const uint8_t *)packed, bits, groups, outputs};
    const Result result = {(const float *)residual, (float *)to};
    Py_BEGIN_ALLOW_THREADS
    done = multiply(source, weights, result, wide, threads);
    Py_END_ALLOW_THREADS
    return nothing(done);
}

static PyObject *py_attend(PyObject *self, PyObject *args) {
    Address qkv, turns, places, data, to;
    float scale;
    int tokens, heads, kv_heads, stride, dim, threads, done;
    (void)self;
    if (!PyArg_ParseTuple(args, "(KKKi)K(iiii)fKi", &qkv, &turns, &places, &tokens, &data, &heads,
                          &kv_heads, &stride, &dim, &scale, &to, &threads))
        return NULL;
    const Queries queries = {
        (float *)qkv, (const float *)turns, (const Place *)places, tokens, heads};
    const Cache cache = {(float *)data, kv_heads, stride, dim};
    Py_BEGIN_ALLOW_THREADS
    done = attend(queries, cache, scale, (float *)to, threads);
    Py_END_ALLOW_THREADS
    return nothing(done);
}

static PyMethodDef methods[] = {
    {"multiply", py_multiply, METH_VARARGS, "See block_product.py."},
    {"attend", py_attend, METH_VARARGS, "See attention.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                     __builtin_cpu_supports("f16c");
    const int avx512 = avx2 && __builtin_cpu_supports("avx512vnni") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
    PyObject *made = PyModule_Create(&module);
    if (made && (PyModule_AddIntConstant(made, "HAS_AVX2", avx2) < 0 ||
                 PyModule_AddIntConstant(made, "HAS_AVX512", avx512) < 0)) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
