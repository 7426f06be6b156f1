"""The paper's walks on the page.

chapters     walks of figures 3 and 5, computed beside many replicas of each
player       the source: plays a chapter hop by hop
walk         where a walk is: agents, token, sum, posterior
story        what is told of it
"""
