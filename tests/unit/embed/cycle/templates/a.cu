//@use part/b.cuh
int a;
