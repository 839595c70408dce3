#!/usr/bin/env python3
"""arm64.py - what of the protocols without locks stays true where processors are weakly ordered: each as the loads and stores
that it is on arm64, and whether the outcome that must not be can be. All executions of two or three threads are looked at, by the
axiomatic model of the Arm ARM (aarch64.cat) without mixed sizes, page tables and instruction fetches. Beside each protocol whose
barrier matters is what it would be without, which must be possible, so that the model is known to see it.

    tests/model/arm64.py        a line for each: ok, or not ok and why; status 1 if any is not

A test is a list of threads; a thread is a list of operations:
    W(loc, value, rel=False)          str, stlr
    R(loc, reg, acq='')               ldr; 'A': ldar; 'Q': ldapr, which compilers for ARMv8.3 take for memory_order_acquire
    RMW(loc, reg, fn, acq, rel, lse)  ldxr..stxr, or one instruction (LSE); fn(old) is what is stored
    F('full'|'ld'|'st')               dmb ish, ishld, ishst
memory_order_seq_cst is stlr, ldar, and ldaxr..stlxr or an instruction that is both; rsk_fence() is F().
"""
import itertools
import sys


class E:
    def __init__(self, **k):
        self.__dict__.update(dict(kind="", loc=None, val=None, reg=None, acq="", rel=False, fn=None,
                                  src=None, thread=-1, pos=0, amo=False, mate=None), **k)


def W(loc, val, rel=False): return ("W", loc, val, rel)
def R(loc, reg, acq=""): return ("R", loc, reg, acq)
def RMW(loc, reg, fn, acq="A", rel=True, lse=False): return ("RMW", loc, reg, fn, acq, rel, lse)
def F(what="full"): return ("F", what)


def events(threads):
    out = []
    for t, ops in enumerate(threads):
        for op in ops:
            pos = len(out)
            if op[0] == "W":
                out.append(E(kind="W", loc=op[1], val=op[2], rel=op[3], thread=t, pos=pos))
            elif op[0] == "R":
                out.append(E(kind="R", loc=op[1], reg=op[2], acq=op[3], thread=t, pos=pos))
            elif op[0] == "F":
                out.append(E(kind="F", loc=None, val=op[1], thread=t, pos=pos))
            else:
                _, loc, reg, fn, acq, rel, lse = op
                r = E(kind="R", loc=loc, reg=reg, acq=acq, thread=t, pos=pos, amo=lse)
                out.append(r)
                if fn is not None:
                    w = E(kind="W", loc=loc, rel=rel, fn=fn, src=r, thread=t, pos=pos + 1, amo=lse)
                    r.mate = w
                    out.append(w)
    return out


def acyclic(n, edges):
    succ = [[] for _ in range(n)]
    for a, b in edges:
        succ[a].append(b)
    state = [0] * n
    for root in range(n):
        if state[root]:
            continue
        stack = [(root, iter(succ[root]))]
        state[root] = 1
        while stack:
            node, it = stack[-1]
            for nxt in it:
                if state[nxt] == 1:
                    return False
                if state[nxt] == 0:
                    state[nxt] = 1
                    stack.append((nxt, iter(succ[nxt])))
                    break
            else:
                state[node] = 2
                stack.pop()
    return True


def run(threads, init, want):
    """The executions that the model allows and for which want(regs, memory) is true; how many."""
    ev = events(threads)
    locs = {e.loc for e in ev if e.loc}
    base = []
    for l in sorted(locs):
        base.append(E(kind="W", loc=l, val=init.get(l, 0), thread=-1, pos=-1))
    ev = base + ev
    idx = {id(e): i for i, e in enumerate(ev)}
    n = len(ev)
    po = [(i, j) for i in range(n) for j in range(n)
          if ev[i].thread == ev[j].thread >= 0 and ev[i].pos < ev[j].pos]
    reads = [i for i in range(n) if ev[i].kind == "R"]
    writes = {l: [i for i in range(n) if ev[i].kind == "W" and ev[i].loc == l] for l in locs}
    static = set()
    for i, j in po:
        a, b = ev[i], ev[j]
        # bob
        if a.kind == "W" and a.rel and b.kind == "R" and b.acq == "A":
            static.add((i, j))
        if a.kind == "R" and a.acq:
            static.add((i, j))
        if b.kind == "W" and b.rel:
            static.add((i, j))
    for i, k in po:
        for k2, j in po:
            if k != k2:
                continue
            f = ev[k]
            if f.kind == "F":
                if f.val == "full" or (f.val == "ld" and ev[i].kind == "R") or (
                        f.val == "st" and ev[i].kind == "W" and ev[j].kind == "W"):
                    static.add((i, j))
    for r in reads:  # an LSE instruction that acquires and releases: range([A]; amo; [L]); po
        m = ev[r].mate
        if m is not None and ev[r].amo and ev[r].acq == "A" and m.rel:
            w = idx[id(m)]
            static |= {(i, j) for i, j in po if i == w}
        if m is not None:
            static.add((r, idx[id(m)]))  # aob: rmw
    found = 0
    for choice in itertools.product(*[writes[ev[r].loc] for r in reads]):
        rf = dict(zip(reads, choice))
        val = {i: ev[i].val for i in range(n) if ev[i].kind == "W" and ev[i].fn is None}
        for _ in range(n):
            for r in reads:
                if rf[r] in val:
                    val[r] = val[rf[r]]
            for i in range(n):
                if ev[i].kind == "W" and ev[i].fn is not None and idx[id(ev[i].src)] in val:
                    val[i] = ev[i].fn(val[idx[id(ev[i].src)]])
        if len(val) < sum(1 for e in ev if e.kind != "F"):
            continue
        regs = {ev[r].reg: val[r] for r in reads}
        for orders in itertools.product(*[itertools.permutations(
                [w for w in writes[l] if ev[w].thread >= 0]) for l in sorted(locs)]):
            co = {}
            for l, o in zip(sorted(locs), orders):
                co[l] = [w for w in writes[l] if ev[w].thread < 0] + list(o)
            mem = {l: val[co[l][-1]] for l in locs}
            if not want(regs, mem):
                continue
            rank = {w: k for l in locs for k, w in enumerate(co[l])}
            coe = [(a, b) for l in locs for a, b in itertools.combinations(co[l], 2)]
            fr = [(r, w) for r in reads for w in writes[ev[r].loc] if rank[w] > rank[rf[r]]]
            rfs = [(rf[r], r) for r in reads]
            internal = [(i, j) for i, j in po if ev[i].loc and ev[i].loc == ev[j].loc] + coe + fr + rfs
            if not acyclic(n, internal):
                continue
            ok = True
            for r in reads:
                if ev[r].mate is not None:
                    w = idx[id(ev[r].mate)]
                    # nobody else's write between
                    if any(rank[rf[r]] < rank[x] < rank[w] for x in writes[ev[r].loc]
                           if ev[x].thread != ev[r].thread):
                        ok = False
            if not ok:
                continue
            ext = lambda i, j: ev[i].thread != ev[j].thread
            ob = set(static)
            ob |= {(i, j) for i, j in coe + fr + rfs if ext(i, j)}
            for r in reads:  # aob: [range(rmw)]; rfi; [A|Q]
                s = rf[r]
                if ev[s].fn is not None and not ext(s, r) and ev[r].acq:
                    ob.add((s, r))
            if acyclic(n, ob):
                found += 1
    return found


bad = False


def c(name, threads, init, want, allowed):
    global bad
    can = run(threads, init, want) > 0
    if can == allowed:
        print(f"ok model.arm64: {name}: {'can be, as it must' if can else 'cannot be'}")
    else:
        bad = True
        print(f"not ok model.arm64: {name}: {'can' if can else 'cannot'} be")


x = lambda v: (lambda old: v)
inc = lambda old: old + 1

# the model itself: known tests
sb = lambda r, m: r["a"] == 0 and r["b"] == 0
for nm, ths, al in [
    ("SB plain", [[W("x",1),R("y","a")],[W("y",1),R("x","b")]], True),
    ("SB dmb", [[W("x",1),F(),R("y","a")],[W("y",1),F(),R("x","b")]], False),
    ("SB stlr ldr", [[W("x",1,True),R("y","a")],[W("y",1,True),R("x","b")]], True),
    ("SB stlr ldar", [[W("x",1,True),R("y","a","A")],[W("y",1,True),R("x","b","A")]], False),
    ("SB stlr ldapr", [[W("x",1,True),R("y","a","Q")],[W("y",1,True),R("x","b","Q")]], True),
    ("SB ldaxr/stlxr ldr", [[RMW("x","_1",x(1)),R("y","a")],[RMW("y","_2",x(1)),R("x","b")]], True),
    ("SB swpal ldr", [[RMW("x","_1",x(1),lse=True),R("y","a")],[RMW("y","_2",x(1),lse=True),R("x","b")]], False),
    ("SB swpl ldar",
  [[RMW("x","_1",x(1),"",True,True),R("y","a","A")],[RMW("y","_2",x(1),"",True,True),R("x","b","A")]], False),
    ("SB swpa ldr", [[RMW("x","_1",x(1),"A",False,True),R("y","a")],[RMW("y","_2",x(1),"A",False,True),R("x","b")]], True),
]:
    c("model: "+nm, ths, {}, sb, al)
mp = lambda r, m: r["a"] == 1 and r["b"] == 0
c("model: MP plain", [[W("x",1),W("y",1)],[R("y","a"),R("x","b")]], {}, mp, True)
c("model: MP stlr ldar", [[W("x",1),W("y",1,True)],[R("y","a","A"),R("x","b")]], {}, mp, False)
c("model: MP stlr ldr dmb.ld", [[W("x",1),W("y",1,True)],[R("y","a"),F("ld"),R("x","b")]], {}, mp, False)

# the ring: producer/consumer against sleepers
c("shm ring, P and A (want_rx)", [[W("d",1),W("tail",1,True),F(),R("want","a")],
   [RMW("want","_",x(1),"",False),F(),R("tail","b")]], {}, sb, False)
c("the same without P: the test can see it", [[W("d",1),W("tail",1,True),R("want","a")],
   [RMW("want","_",x(1),"",False),F(),R("tail","b")]], {}, sb, True)
c("shm ring, the bytes", [[W("d",1),W("tail",1,True)],[R("tail","a","A"),R("d","b")]], {}, mp, False)
c("shm ring, after a sleep: word (relaxed add, release), fence A, bytes",
  [[W("d",1),W("tail",1,True),RMW("word","_",inc,"",True)],[R("word","a"),F(),R("d","b")]], {}, mp, False)
# overwriting: consumer reads d (old 0), stores consumed; producer reads consumed, overwrites d
c("shm ring, credit: a byte read after it is overwritten",
  [[R("d","a"),W("cons",1,True)],[R("cons","b","A"),W("d",1)]], {}, lambda r,m: r["a"]==1 and r["b"]==1, False)
c("shm arm, D: tx_asked before want_tx, seen through bell",
  [[W("asked",1),RMW("want","_",x(1),"",True)],
   [RMW("want","w",x(0),"A",True),RMW("dirty","_2",x(1),"A",True)],
   [RMW("dirty","dd",x(0),"A",True),R("asked","b")]], {}, lambda r,m: r["w"]==1 and r["dd"]==1 and r["b"]==0, False)
c("shm fail: gone (relaxed) before the bell", [[W("gone",1),RMW("dirty","_",x(1),"A",True)],
   [RMW("dirty","a",x(0),"A",True),R("gone","b")]], {}, mp, False)
# bell
c("bell: summary seen set, then cleared by a drain that misses the bit",
  [[RMW("dirty","_",x(1)),R("sum","a","A")],[RMW("sum","_3",x(0)),R("dirty","b","A")]], {"sum":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
c("bell: the same with acquire/release only (control)",
  [[RMW("dirty","_",x(1),"A",True),R("sum","a","")],[RMW("sum","_3",x(0),"A",True),R("dirty","b","")]], {"sum":1},
  lambda r,m: r["a"]==1 and r["b"]==0, True)
c("bell: ring against arm", [[RMW("sum","_",x(1),"",True),F(),R("armed","a")],[W("armed",1),F(),R("sum","b")]], {}, sb, False)
c("shard: disarm against arm (count, parts)",
  [[RMW("n","_",lambda o:o-1),W("armed",0),F(),R("n","a")],[RMW("n","_2",inc),F(),W("armed",7)]], {"n":1,"armed":3},
  lambda r,m: r["a"]==0 and m["armed"]==0, False)
c("shard: add against arm", [[W("parts",1,True),F(),R("n","a")],[RMW("n","_",inc),F(),R("parts","b","A")]], {}, sb, False)
c("shard: all_quiet, and the one who cleared has neither the lock nor told",
  [[RMW("drain","_",x(1),"A",False),RMW("sum","_2",x(0)),W("told",1),RMW("drain","_3",x(0),"",True)],
   [R("sum","a","A"),R("drain","b","A"),R("told","t")]], {"sum":1},
  lambda r,m: r["a"]==0 and r["b"]==0 and r["t"]==0 , False)
# ctl slots
c("ctl slot: words before seq", [[W("w",1),W("seq",1,True)],[R("seq","a","A"),R("w","b")]], {}, mp, False)
c("ctl slot: overwritten before it is read",
  [[R("w","a"),W("head",1,True)],[R("head","b","A"),W("w",1)]], {}, lambda r,m: r["a"]==1 and r["b"]==1, False)
# locks and what is left to be done
c("fb_lock: todo, trylock fails / unlock, todo (release unlock, acquire trylock)",
  [[RMW("todo","_",x(1)),R("lock","a","A")],[RMW("lock","_2",x(0),"",True),R("todo","b","A")]], {"lock":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
c("the same, LSE",
  [[RMW("todo","_",x(1),lse=True),R("lock","a","A")],[RMW("lock","_2",x(0),"",True,True),R("todo","b","A")]], {"lock":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
c("the same, if trylock's failed look were plain",
  [[RMW("todo","_",x(1)),R("lock","a","")],[RMW("lock","_2",x(0),"",True),R("todo","b","A")]], {"lock":1},
  lambda r,m: r["a"]==1 and r["b"]==0, True)
c("fb_enter: in, gate / guard: gate, in",
  [[RMW("in","_",inc),R("gate","a","A")],[RMW("gate","_2",x(1)),R("in","b","A")]], {}, sb, False)
c("pl_count: length, unlock, asleep / asleep, length",
  [[W("len",1),RMW("lock","_",x(0),"",True),R("asleep","a","A")],
   [RMW("asleep","_2",inc),R("len","b","A")]], {"lock":1}, sb, False)
c("inbox: push, asleep / asleep, inbox",
  [[RMW("inbox","_",x(1)),R("asleep","a","A")],[RMW("asleep","_2",inc),R("inbox","b","A")]], {}, sb, False)
c("inbox: pending, inboxed is set / inboxed=0, pending",
  [[RMW("pend","_",x(1)),RMW("boxed","a",x(1))],[W("boxed",0,True),RMW("pend","b",x(0))]], {"boxed":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
c("loop push: jobs, asleep / asleep, jobs",
  [[RMW("jobs","_",x(1)),R("asleep","a","A")],[RMW("asleep","_2",x(1)),R("jobs","b","A")]], {}, sb, False)
c("loop job: data, posted is set / posted=0 (store), data",
  [[W("data",1),RMW("posted","a",x(1))],[W("posted",0,True),R("data","b")]], {"posted":1},
  lambda r,m: r["a"]==1 and r["b"]==0, True)
c("the same, posted=0 by exchange", [[W("data",1),RMW("posted","a",x(1))],[RMW("posted","_",x(0)),R("data","b")]], {"posted":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
c("link_post_once: todo, flag is set / flag cleared (RMW), todo",
  [[W("todo",1),RMW("flag","a",x(1))],[RMW("flag","_",x(0)),R("todo","b")]], {"flag":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
# find.c
find = lambda r,m: r["a"]==1 and r["b"]==0
c("find: refs=1 (stlr), fresh is set (CAS fails) / fresh=0, refs (plain), LL/SC",
  [[W("refs",1,True),R("fresh","a","A")],[RMW("fresh","_",x(0)),R("refs","b","")]], {"fresh":1}, find, True)
c("the same, LSE",
  [[W("refs",1,True),R("fresh","a","A")],[RMW("fresh","_",x(0),lse=True),R("refs","b","")]], {"fresh":1}, find, False)
c("find mended: the failed look is made by a read-modify-write, LL/SC",
  [[W("refs",1,True),RMW("fresh","a",lambda o:o)],[RMW("fresh","_",x(0)),R("refs","b","")]], {"fresh":1}, find, False)
c("find: closed, fresh is set / fresh=0, closed (ldar)",
  [[RMW("closed","_",x(1)),R("fresh","a","A")],[RMW("fresh","_2",x(0)),R("closed","b","A")]], {"fresh":1}, find, False)
c("find: the same, closed read with ldapr",
  [[RMW("closed","_",x(1)),R("fresh","a","A")],[RMW("fresh","_2",x(0)),R("closed","b","Q")]], {"fresh":1}, find, True)
# polls
c("poll: woken=WAKE (stlr), gate (ldar) / gate=1, woken=WOKEN",
  [[W("woken",1,True),R("gate","b","A")],
   [RMW("gate","_2",x(1)),RMW("woken","_",x(2))]], {}, lambda r,m: m["woken"]==1 and r["b"]==0, False)
c("the same, gate read with ldapr",
  [[W("woken",1,True),R("gate","b","Q")],
   [RMW("gate","_2",x(1)),RMW("woken","_",x(2))]], {}, lambda r,m: m["woken"]==1 and r["b"]==0, True)
c("sleepers: seq, unlock, fence, gate (ldapr) / gate, seq",
  [[RMW("seq","_",inc),RMW("lock","_2",x(0),"",True),F(),R("gate","a","Q")],
   [RMW("gate","_3",x(1)),R("seq","b","A")]], {"lock":1}, sb, False)
# the file that stat reads
c("pub: a slot used again: gen even, registry lock, fields / fields, gen (with a load fence between)",
  [[W("gen",2,True),RMW("reg","_",x(0),"",True),RMW("reg","_2",x(1),"A",False),W("f",9)],
   [R("f","a"),F("ld"),R("gen","b")]], {"gen":1,"reg":1},
  lambda r,m: r["a"]==9 and r["b"]==1, False)
# verbs
c("verbs poll: polled, unlock, fence, armed / armed, device's look",
  [[W("gone",1),RMW("lock","_",x(0)),F(),R("armed","a","A")],[RMW("armed","_2",x(1)),F(),R("gone","b")]], {"lock":1}, sb, False)
c("verbs WAIT: consumed, needs / needs, consumed",
  [[W("cons",1,True),R("needs","a","A")],[RMW("needs","_",x(1)),R("cons","b","A")]], {}, sb, False)
c("verbs due: due, lock is taken / unlock, fence, due",
  [[RMW("due","_",x(1)),R("lock","a","A")],[RMW("lock","_2",x(0)),F(),R("due","b")]], {"lock":1},
  lambda r,m: r["a"]==1 and r["b"]==0, False)
sys.exit(bad)
