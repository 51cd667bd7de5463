"""The crash matrix: one fault at every named gap of the code, in every situation of a job, and where the job ends then.

What would break without it: nobody would know whether a job survives a death between two given commits. A case is a fresh
job of a saga under test, the real engine on a real database, and one fault; recovery then goes on until nothing is due.
The job must end as the undisturbed run of the same script did, with the same effects in the outside's own book, or as
declared for a fault of that kind on an effect of that kind (`declared`).

In reading order: faults, scripts, times and outside (what the cases stand on), witness, play (one case), declared, survey
(all cases), report. `errand` is a saga of another shape than a trip.
"""
